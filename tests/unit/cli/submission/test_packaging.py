"""From options to packaged code in a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import spec
from holdfast.cli.submission.code_options import items, requirement_items
from holdfast.cli.submission.packaging import CodeOptions, Packed, bring_code, packing
from holdfast.cli.submission.pool_options import code_of, spec_of
from holdfast.cli.submission.requirements import lines_of
from holdfast.cli.submission.run_spec import RunRequest, job_of
from holdfast.errors import BundleRefused, InvalidInput
from holdfast.spec.models.references import unusable_packages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "code"
    for path in (
        "train.py",
        "run.sh",
        "whole.pyz",
        "pkg/__init__.py",
        "pkg/task.py",
        "dist/a-1-py3-none-any.whl",
        "conf/c.yaml",
    ):
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_text(path)
    return made


@pytest.fixture
def packed() -> Iterator[Packed]:
    with packing() as made:
        yield made


def brought(data: dict[str, Any], options: CodeOptions | None, packed: Packed) -> spec.JobSpec:
    bring_code(data, options, packed)
    return spec.parse(data).job_spec


def test_a_script_alone_is_a_job_of_one_worker(folder: Path, packed: Packed) -> None:
    read = brought({}, CodeOptions(str(folder), script="train.py", args=("--lr", "1")), packed)
    [pool] = read.worker_pool_specs
    assert pool.process_spec is not None
    assert pool.process_spec.command == ("python3", "train.py")
    assert pool.process_spec.args == ("--lr", "1")
    assert pool.process_spec.packaged_code == spec.PackagedCode(bundle=packed.bundles[0].digest)


def test_pools_of_images_and_packages_do_without_local_code(folder: Path, packed: Packed) -> None:
    container = {"replicaCount": 1, "containerSpec": {"imageUri": "train:1"}}
    package = {"replicaCount": 1, "pythonPackageSpec": {"pythonModule": "m", "packageUris": ["https://x/a.whl"]}}
    data = {"workerPoolSpecs": [{"replicaCount": 1}, container, package]}
    first, second, third = brought(data, CodeOptions(str(folder), script="train.py"), packed).worker_pool_specs
    assert first.process_spec is not None and first.process_spec.packaged_code is not None
    assert second.process_spec is third.process_spec is None
    with pytest.raises(InvalidInput, match="every pool brings code of its own"):
        bring_code({"workerPoolSpecs": [container, package]}, CodeOptions(str(folder), script="train.py"), packed)


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ({"script": "run.sh"}, ("bash", "run.sh")),
        ({"script": "whole.pyz"}, ("python3", "whole.pyz")),
        ({"module": "pkg.task"}, ("python3", "-m", "pkg.task")),
    ],
)
def test_what_runs(folder: Path, packed: Packed, options: dict[str, str], command: tuple[str, ...]) -> None:
    [pool] = brought({}, CodeOptions(str(folder), **options), packed).worker_pool_specs  # type: ignore[arg-type]
    assert pool.process_spec is not None
    assert pool.process_spec.command == command


def test_pools_of_the_other_services_command_share_the_first_ones_code(folder: Path, packed: Packed) -> None:
    texts = [
        f"machine-type=big,replica-count=1,executor-image-uri=e,local-package-path={folder},script=train.py,"
        "requirements=numpy;pandas>=2,extra-packages=dist/a-1-py3-none-any.whl,extra-dirs=conf",
        "machine-type=big,replica-count=2,accelerator-count=4",
    ]
    read = brought(spec_of(texts), code_of(texts), packed)
    first, second = read.worker_pool_specs
    assert first.process_spec == second.process_spec
    assert first.process_spec is not None and first.process_spec.packaged_code is not None
    assert first.process_spec.packaged_code.requirements == ("numpy", "pandas>=2")
    assert first.process_spec.packaged_code.packages == ("dist/a-1-py3-none-any.whl",)
    assert (second.replica_count, second.machine_spec.accelerator_count) == (2, 4)


def test_a_file_gives_the_pools_and_options_the_code(folder: Path, packed: Packed) -> None:
    pools = [
        {"replicaCount": 1, "processSpec": {"command": ["old"], "env": [{"name": "A", "value": "1"}]}},
        {"replica_count": 3},
    ]
    read = brought(
        {"displayName": "d", "jobSpec": {"workerPoolSpecs": pools}},
        CodeOptions(str(folder), script="train.py"),
        packed,
    )
    first, second = read.worker_pool_specs
    assert first.process_spec is not None and second.process_spec is not None
    assert first.process_spec.command == second.process_spec.command == ("python3", "train.py")
    assert first.process_spec.env == (spec.EnvVar(name="A", value="1"),)


def test_local_packages_of_a_python_package_are_sent_along(folder: Path, packed: Packed) -> None:
    uris = [str(folder / "dist/a-1-py3-none-any.whl"), "https://x/b.whl"]
    pool = {"replicaCount": 1, "pythonPackageSpec": {"packageUris": uris, "pythonModule": "a"}}
    read = brought({"workerPoolSpecs": [pool]}, None, packed)
    package = read.worker_pool_specs[0].python_package_spec
    assert package is not None
    assert package.package_uris == ("0/a-1-py3-none-any.whl", "https://x/b.whl")
    assert package.bundle == packed.bundles[0].digest
    assert unusable_packages(read) == []


def test_a_run_packs_its_folder_and_starts_in_it(folder: Path, packed: Packed) -> None:
    job = job_of(RunRequest(("python", "train.py"), replicas=3), {}, "/home/ann")
    packed.give(job, CodeOptions(str(folder), requirements=("numpy",)), keep_directory=False)
    for pool in job.job_spec.worker_pool_specs:
        assert pool.process_spec.working_directory == ""
        assert pool.process_spec.packaged_code.bundle == packed.bundles[0].digest
        assert list(pool.process_spec.packaged_code.requirements) == ["numpy"]


def test_requirements_by_url_are_of_no_machine_and_pass(folder: Path) -> None:
    wheel = "https://wheels.example/a-1-py3-none-any.whl"
    (folder / "requirements.txt").write_text(f"{wheel}\n")
    assert lines_of([f"{wheel}#sha256=1", "https://wheels.example/b-1.tar.gz"], folder) == [
        wheel,
        f"{wheel}#sha256=1",
        "https://wheels.example/b-1.tar.gz",
    ]


@pytest.mark.parametrize("script", ["made/train.py", "./made/train.py", "made//train.py"])
def test_a_script_comes_along_though_it_is_ignored_however_it_is_written(
    folder: Path, packed: Packed, script: str
) -> None:
    (folder / ".gitignore").write_text("made/\n")
    (folder / "made").mkdir()
    (folder / "made/train.py").write_text("")
    packed.code(CodeOptions(str(folder), script="train.py"))
    packed.code(CodeOptions(str(folder), script=script))
    without, with_it = packed.bundles
    assert with_it.files == without.files + 2


def test_the_folder_above_is_a_package_like_others(tmp_path: Path, packed: Packed) -> None:
    (tmp_path / "project/scripts").mkdir(parents=True)
    (tmp_path / "project/setup.py").write_text("")
    (tmp_path / "project/scripts/train.py").write_text("")
    options = CodeOptions(str(tmp_path / "project/scripts"), script="train.py", packages=("..",))
    assert packed.code(options)["packages"] == [".holdfast/packages/project"]


def test_setup_py_is_installed_where_there_are_no_requirements(folder: Path, packed: Packed) -> None:
    (folder / "setup.py").write_text("")
    assert packed.code(CodeOptions(str(folder), script="train.py"))["packages"] == ["."]
    (folder / "requirements.txt").write_text("numpy\n")
    assert "packages" not in packed.code(CodeOptions(str(folder), script="train.py"))


def test_packages_from_elsewhere_come_along(folder: Path, packed: Packed, tmp_path: Path) -> None:
    (tmp_path / "b.whl").write_text("b")
    code = packed.code(CodeOptions(str(folder), script="train.py", packages=(str(tmp_path / "b.whl"),)))
    assert code["packages"] == [".holdfast/packages/b.whl"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"script": "no.py"}, "--script: there is no no.py in"),
        ({"script": "../x.py"}, "is not below the folder"),
        ({"module": "pkg.no"}, "there is neither pkg/no.py nor"),
        ({"packages": ("no.whl",)}, "--extra-packages: there is no no.whl"),
        ({"folders": ("train.py",)}, "--extra-dirs: train.py is no folder"),
        ({"requirements": ("no.txt",)}, "--requirements: there is no file no.txt"),
        ({"requirements": ("./proj",)}, "--extra-packages ./proj"),
        ({"packages": ("x" * 300,)}, "--extra-packages: there is no x"),
        ({"requirements": (".",)}, "is of this machine"),
        ({"requirements": ("-e .",)}, "--requirements: -e . names a file, which hosts don't have"),
    ],
)
def test_what_is_not_there_is_named(folder: Path, packed: Packed, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        packed.code(CodeOptions(str(folder), **options))
    with pytest.raises(InvalidInput, match="there is no folder"):
        packed.code(CodeOptions(str(folder / "none"), **options))
    with pytest.raises(InvalidInput, match="--package: there is no folder"):
        packed.code(CodeOptions(str(folder / "none"), folder_option="--package"))


def test_a_hundred_thousand_files_are_refused(
    packed: Packed, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    names = ["train.py", *(f"f{i}" for i in range(100_000))]
    real = __import__("os").listdir
    monkeypatch.setattr("os.listdir", lambda path: names if Path(path) == folder else real(path))
    status = (folder / "train.py").lstat()
    monkeypatch.setattr(Path, "lstat", lambda self: status)
    with pytest.raises(BundleRefused, match=r"more than 50,000 files to pack.*holdfastignore"):
        packed.code(CodeOptions(str(folder), script="train.py"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("local-package-path=.", "not what to run of it"),
        ("script=a.py,python-module=a", "has both a script and a python-module"),
    ],
)
def test_pools_that_do_not_say_what_to_run(text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        code_of([text])


def test_only_the_first_pool_has_code() -> None:
    with pytest.raises(InvalidInput, match=r"spec\[1\]: script belongs to the first pool"):
        code_of(["machine-type=a,script=a.py", "machine-type=a,script=b.py"])


def test_requirements_of_files_and_of_options(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(
        "numpy==2.1 # why\n# no\n\n-r more/other.txt\n--extra-index-url https://x\n"
    )
    (tmp_path / "more").mkdir()
    (tmp_path / "more/other.txt").write_text("torch==2.13 \\\n  --hash=sha256:ab\nnumpy==2.1\n")
    found = lines_of(["requirements.txt", "pandas"], tmp_path)
    assert found == ["numpy==2.1", "torch==2.13 --hash=sha256:ab", "--extra-index-url https://x", "pandas"]


_OF_FILES = (
    *("-e .", "-c c.txt", "-cc.txt", "--editable .", "-f wheels", "--find-links=./wheels"),
    *("./x.whl", "dist/x-1.tar.gz", "/abs/x.whl", "dist/x-1.whl[all]", 'x-1.whl ; python_version > "3"'),
)


@pytest.mark.parametrize("line", _OF_FILES)
def test_requirements_that_name_files_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"{line}\n")
    with pytest.raises(InvalidInput, match=r"names a file, which hosts don't have.*--extra-packages"):
        lines_of([], tmp_path)


@pytest.mark.parametrize("line", ["-f https://download.example/torch.html", "--find-links /shared/wheels"])
def test_links_that_hosts_may_have_pass(tmp_path: Path, line: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"{line}\n")
    assert lines_of([], tmp_path) == [line]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_requirements_are_read_as_pip_reads_them(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "base.txt").write_text("torch \\\r\n  --hash=sha256:ab\r\n", encoding=encoding, newline="")
    (tmp_path / "requirements.txt").write_text("-rbase.txt\n# C:\\dir\\\nnumpy\n", encoding=encoding)
    assert lines_of([], tmp_path) == ["torch --hash=sha256:ab", "numpy"]


def test_a_requirement_may_be_longer_than_a_name_of_a_file(tmp_path: Path) -> None:
    line = "numpy==2.1 " + " ".join(f"--hash=sha256:{digit * 64}" for digit in "abcd")
    assert lines_of([line], tmp_path) == [line]


def test_requirements_that_include_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("-r requirements.txt\n")
    with pytest.raises(InvalidInput, match="too deep"):
        lines_of([], tmp_path)


def test_a_file_without_pools_is_left_as_it_is_where_no_code_is_brought() -> None:
    data = {"displayName": "x"}
    with packing() as packed:
        bring_code(data, None, packed)
    assert data == {"displayName": "x"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("numpy>=1.26,<2,pandas", ["numpy>=1.26,<2", "pandas"]),
        ("a[x,y]~=1.0, !=1.3 , b==1,c", ["a[x,y]~=1.0, !=1.3", "b==1", "c"]),
        ("^;^a>=1,<2;b", ["a>=1,<2", "b"]),
        (",a,,", ["a"]),
    ],
)
def test_a_requirement_keeps_its_own_commas(text: str, found: list[str]) -> None:
    assert list(requirement_items((text,))) == found


def test_lists_may_have_another_separator() -> None:
    assert items(("^;^a,b;c", "d,e")) == ("a,b", "c", "d", "e")
