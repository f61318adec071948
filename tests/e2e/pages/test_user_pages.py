"""Every line in a block of the pages for users is typed at a cluster as it is printed, but for names and places."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from tests.e2e.cli_cluster import DevCluster, rank_pids, started
from tests.e2e.pages.typist import ROOT, Page, Typist, user_shell

ELSEWHERE = {
    r"^make |^pip install": "CONTRIBUTING.md, tests/repo/deploy/test_packages.py",
    r"run --pty|^nvidia-ctk": "tests/e2e/jobs/test_terminal.py; a host with GPUs",
    r"^holdfast top( +#|$)": "tests/e2e/jobs/test_top.py",
    r"^holdfast job inject ": "tests/e2e/hangs/test_inject.py, each fault on a gang of its own",
    r"^cd \.holdfast-dev|^curl ": "tests/e2e/cluster/test_reached_from_elsewhere.py",
}
"""Lines that can't be typed here, by a regular expression, and what runs them."""
PROGRAM = """
import os, sys, time
for step in range(3):
    print(f"step {step}", flush=True)
while os.path.exists("stay"):
    time.sleep(0.1)
sys.exit("--fail" in sys.argv)
"""


def test_every_line_of_the_pages_for_users(tmp_path: Path) -> None:
    folder = tmp_path / "trainings"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "job.yaml").write_text(job_file(folder))
    (folder / "train.yaml").write_text(job_file(folder))
    pages = [Page("README", ".")]
    pages += [Page(path.stem, "docs/users") for path in sorted((ROOT / "docs/users").glob("*.md"))]
    by_name = {page.name: page for page in pages}
    with started(tmp_path / "c", hosts=4, gpus=8) as cluster, user_shell(folder, cluster.env) as shell:
        first_job(shell, by_name["README"])
        for heading in ("Dry runs", "`jobSpec`"):
            shell.type_all(by_name["job-file"], by_name["job-file"].lines(heading))
        a_live_job(cluster, shell, by_name)
        a_sweep(cluster, shell, by_name["many-jobs"])
        planned(shell, by_name["schedules"])
        packaged(shell, by_name["packaging"], folder)
        a_failure(cluster, shell, by_name)
        secret(shell, by_name["secrets"])
    nothing_is_left_untyped(pages)


def job_file(folder: Path) -> str:
    """The first example of the page on job files, for this machine."""
    (text, *_) = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs/users/job-file.md").read_text(), re.M | re.S)
    job = yaml.safe_load(text)
    for pool in job["jobSpec"]["workerPoolSpecs"]:
        pool["machineSpec"]["memoryMb"] = 64
        pool["processSpec"]["workingDirectory"] = str(folder)
    return yaml.safe_dump(job)


def first_job(shell: Typist, page: Page) -> None:
    ps = {r"\bJOB\b": "digits"}
    lines = [line for line in page.blocks()["First job"][0] if not elsewhere(line)]
    said = shell.type_all(page, lines, ps)
    assert said.count("step 2") >= 3 and "SUCCEEDED" in said
    assert "would start now" in shell.type("holdfast submit --dry-run job.yaml")


def a_live_job(cluster: DevCluster, shell: Typist, pages: dict[str, Page]) -> None:
    """What is asked of a job of 32 ranks that runs."""
    shell.type("touch stay")
    start, *at_shells = pages["shell"].lines("")
    job = shell.type_all(pages["shell"], [start], {"run": "run --detach"}).split()[-1]
    cluster.reach(job, "RUNNING")
    here = {r"\bJOB\b": job}
    seventeenth = rank_pids(cluster.job(job))[17]
    said = shell.type_all(pages["shell"], at_shells, here | {"4711": str(seventeenth)})
    assert "train.py" in said
    shell.type_all(pages["shell"], pages["shell"].lines("A hung job"), here)
    said = shell.type_all(pages["hang-detection"], pages["hang-detection"].lines("What you see"), here)
    assert "32 ranks" in said
    assert job in shell.type_all(pages["top"], [line for line in pages["top"].lines("") if "--once" in line])
    shell.type_all(pages["web"], pages["web"].lines(""), here | {"holdfast web": "BROWSER=true holdfast web"})
    shell.type("rm stay")
    cluster.reach(job, "SUCCEEDED")
    for name in ("goodput", "series"):
        lines = [line for line in pages[name].lines("") if "--recording" not in line]
        shell.type_all(pages[name], lines, here)


def a_sweep(cluster: DevCluster, shell: Typist, page: Page) -> None:
    (loop,) = page.blocks()[""]
    page.typed.update(loop)
    jobs = shell.type("\n".join(loop)).split()
    assert len(jobs) == 3
    shell.type("cp train.py prep.py; cp train.py report.py")
    said = shell.type_all(page, page.lines("Arrays"), {"1-20%4": "1-3%2"})
    assert "Array of 3 jobs, 2 at once" in said and len(re.findall(r"-[123]  SUCCEEDED", said)) == 3
    last = shell.type_all(page, page.lines("One after another")).split()[-1]
    cluster.reach(last, "SUCCEEDED")
    headings = ("Finding jobs", "Waiting", "Once more, with a change", "Stopping what belongs together")
    find, wait, again, stop = map(page.lines, headings)
    here = {"train-x7k2mq": jobs[0]}
    assert shell.type_all(page, wait).count("SUCCEEDED") == 9
    reruns = re.findall(r"holdfast logs -f (\S+)", shell.type_all(page, again, here))
    assert len(reruns) == 2
    assert shell.type_all(page, find, here).split()[-2:] == reruns
    scripted = {r"(--label \S+|--all-mine)": r"\1 --yes"}
    shell.type("touch stay")
    shell.type("\n".join(loop))
    assert shell.type_all(page, stop, scripted).count("is being cancelled") == 3
    shell.type("rm stay; holdfast wait --label sweep=lr", ends=(130,))


def planned(shell: Typist, page: Page) -> None:
    """Schedules, which are due at night, and jobs of a template: as it is, with a field changed, with a patch."""
    assert re.search(r"^nightly .*30 2 \* \* MON-FRI", shell.type_all(page, page.lines("Schedules")), re.M)
    shell.type("""echo '{"jobSpec": {"scheduling": {"timeout": "3600s"}}}' > change.json""")
    said = shell.type_all(page, page.lines("Templates"))
    jobs = re.findall(r"^digits-[a-z0-9]{6}$", said, re.M)
    assert "train@1" in said and len(jobs) == 2 and "step 2" in said  # the third is waited for, and shown
    assert shell.type(f"holdfast wait {' '.join(jobs)}").count("SUCCEEDED") == 2
    shell.type("holdfast schedule remove nightly; holdfast schedule remove weekly")


def packaged(shell: Typist, page: Page, folder: Path) -> None:
    (folder / "home/digits/trainer").mkdir(parents=True)
    (folder / "home/digits/trainer/task.py").write_text(PROGRAM)
    without = {r"--requirements numpy==2.1.0,pandas": "", ";pandas|,requirements=numpy": "", "~": "home"}
    first, pools = page.blocks()[""]
    said = shell.type_all(page, first[:2], without)
    ids = re.findall(r"holdfast logs -f (\S+)", said)
    assert len(ids) == 2
    assert "step 2" in shell.type_all(page, first[2:], without)
    page.typed.update(pools)
    said = shell.type(re.sub(";pandas|,requirements=numpy", "", "\n".join(pools)))
    ids += re.findall(r"holdfast logs -f (\S+)", said)
    assert shell.type(f"holdfast wait {' '.join(ids)}").count("SUCCEEDED") == 3


def a_failure(cluster: DevCluster, shell: Typist, pages: dict[str, Page]) -> None:
    job = shell.type("holdfast run --detach --max-restarts 0 -- sh -c 'sleep 5; exit 3'").split()[-1]
    cluster.reach(job, "FAILED")
    shell.until("exit-1-workerpool0-0", f"holdfast job series {job}")
    page = pages["series"]
    shell.type_all(page, [line for line in page.lines("") if "--recording" in line], {r"\bJOB\b": job})


def secret(shell: Typist, page: Page) -> None:
    shell.type("echo k3y > key")
    said = shell.type_all(page, page.lines(""), {"wandb  .*": "wandb < key"})
    assert "step 2" in said and "k3y" not in said


def nothing_is_left_untyped(pages: list[Page]) -> None:
    left = {line.strip() for page in pages for line in page.untyped() if is_command(line)}
    assert sorted(line for line in left if not elsewhere(line)) == []
    assert [pattern for pattern in ELSEWHERE if not any(re.search(pattern, line) for line in left)] == []


def is_command(line: str) -> bool:
    """Whether a line of a block is typed rather than printed by a program."""
    return bool(re.match(r" *(holdfast|curl|pip|make|cd|nvidia-ctk) ", line))


def elsewhere(line: str) -> bool:
    return any(re.search(pattern, line) for pattern in ELSEWHERE)
