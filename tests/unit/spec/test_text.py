"""YAML and JSON texts and files: what is taken, what is refused, and in which words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from holdfast import spec
from holdfast.errors import InvalidSpec
from holdfast.spec import HangAction
from holdfast.spec.parse import text as text_module

YAML = """\
displayName: digits
jobSpec:
  workerPoolSpecs:
  - replicaCount: 1
    processSpec:
      command: [python, train.py]
labels: {team: vision}
"""


TASK = "workerPoolSpecs: [{replicaCount: 1, processSpec: {command: [x]}}]\n"


@pytest.fixture(autouse=True, params=["CSafeLoader", "SafeLoader"])
def _each_loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With libyaml and, as where PyYAML was built without it, in plain Python."""
    if not hasattr(yaml, request.param):
        pytest.skip("PyYAML without libyaml")
    monkeypatch.setattr(text_module, "_LOADER", getattr(yaml, request.param))


def refusal(text: str, source: str = "job.yaml") -> str:
    with pytest.raises(InvalidSpec) as caught:
        spec.parse_text(text, source=source)
    return str(caught.value)


def args_of(arguments: str) -> tuple[str, ...]:
    text = f"workerPoolSpecs: [{{replicaCount: 1, processSpec: {{command: [x], args: {arguments}}}}}]"
    task = spec.parse_text(text, source="stdin").job_spec.worker_pool_specs[0].process_spec
    assert task is not None
    return task.args


def test_yaml_and_json_of_a_job_are_equal() -> None:
    job = spec.parse_text(YAML, source="job.yaml")
    as_json = json.dumps(spec.to_dict(job))

    assert job.display_name == "digits"
    assert job.labels == {"team": "vision"}
    assert spec.parse_text(as_json, source="job.json") == job
    assert spec.parse_text(as_json, source="stdin") == job
    assert spec.parse_text(as_json.replace(",", ",\n\t"), source="stdin") == job


def test_flow_style_yaml_that_only_starts_like_json_is_read() -> None:
    text = "{jobSpec: {workerPoolSpecs: [{replicaCount: 1, processSpec: {command: [x]}}]}}"
    assert spec.parse_text(text, source="stdin").display_name == "job"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("dir/train.yaml", "train"),
        ("train.prod.yml", "train.prod"),
        ("my job!.json", "my-job"),
        ("stdin", "job"),
        ("???.yaml", "job"),
        ("x" * 200 + ".yaml", "x" * 128),
    ],
)
def test_a_job_without_a_name_is_named_after_its_file(source: str, name: str) -> None:
    text = '{"workerPoolSpecs": [{"replicaCount": 1, "processSpec": {"command": ["x"]}}]}'
    assert spec.parse_text(text, source=source).display_name == name


@pytest.mark.parametrize("source", ["body.json", "stdin"])
@pytest.mark.parametrize("comment", ["// what follows is optional", "/* so is this */"])
def test_comments_in_json_are_called_so(source: str, comment: str) -> None:
    body = f"""{{ "displayName": "d",
  {comment}
  "jobSpec": {{}} }}"""
    assert "line 2, column 3: JSON has no comments; remove this one" in refusal(body, source)


def test_two_slashes_may_start_a_text_of_yaml() -> None:
    assert text_module.load('{"a": //b}', source="stdin") == {"a": "//b"}


def test_aliases_merges_and_block_text_work() -> None:
    text = """
    workerPoolSpecs:
    - &pool
      replicaCount: 1
      machineSpec: &m {acceleratorCount: 2, cpuCount: 4}
      processSpec: {command: &c [python, train.py], args: [*word, "--x"]}
    - <<: *pool
      replicaCount: 3
      machineSpec: {<<: [*m, {cpuCount: 9, memoryMb: 5}], acceleratorCount: 1}
    """.replace("*word", "&word word")
    pools = spec.parse_text(text, source="stdin").job_spec.worker_pool_specs

    assert pools[1].process_spec == pools[0].process_spec
    assert pools[1].replica_count == 3
    machine = pools[1].machine_spec
    assert (machine.accelerator_count, machine.cpu_count, machine.memory_mb) == (1, 4, 5)


def test_quoted_and_explicit_text_and_dates_are_text() -> None:
    assert args_of("""["1", 'yes', !!str 2, "", 2024-01-31, 1e5]""") == ("1", "yes", "2", "", "2024-01-31", "1e5")


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("1", "number"),
        ("-2.50", "number"),
        ("010", "number"),
        ("0x1F", "number"),
        ("1_000", "number"),
        ("1:30", "number"),
        (".inf", "number"),
        ("9" * 50, "number"),
        ("yes", "boolean"),
        ("No", "boolean"),
        ("off", "boolean"),
        ("true", "boolean"),
        ("~", "null"),
        ("null", "null"),
    ],
)
def test_unquoted_values_that_yaml_takes_for_something_else_must_be_quoted(written: str, kind: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        args_of(f"[{written}]")
    [violation] = caught.value.violations
    assert violation.path == "workerPoolSpecs[0].processSpec.args[0]"
    assert violation.problem == f"must be text, but YAML reads {written} without quotes as a {kind}"
    assert violation.fix == f'put it in quotes: "{written}"'


@pytest.mark.parametrize("written", ["010", "0x1", "1:30", "1_0", ".inf", "1.5", "yes", "9" * 50])
def test_odd_yaml_numbers_are_no_counts(written: str) -> None:
    text = f"workerPoolSpecs: [{{replicaCount: {written}, processSpec: {{command: [x]}}}}]"
    assert "workerPoolSpecs[0].replicaCount: must be" in refusal(text)


def test_keys_are_text_whatever_yaml_takes_them_for() -> None:
    text = YAML.replace("{team: vision}", '{on: "1", 2: "b"}')
    assert spec.parse_text(text, source="s").labels == {"on": "1", "2": "b"}


def test_repeated_keys_are_refused_with_their_paths_in_yaml_and_json() -> None:
    message = refusal(
        YAML.replace("replicaCount: 1", "replicaCount: 1\n    replicaCount: 1") + "labels: {a: b, a: c}"
    )
    assert "jobSpec.workerPoolSpecs[0].replicaCount: is given twice (keep one of them)" in message
    assert "labels: is given twice" in message
    assert "labels.a: is given twice" in message

    assert "labels.a: is given twice" in refusal('{"labels": {"a": "b", "a": "c"}}', "job.json")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("a: [", "is not valid YAML: line "),
        ("a: 'x", "is not valid YAML: line 1"),
        ("a: b: c", "is not valid YAML: line 1, column 5: mapping values are not allowed"),
        ("a: \x01", "is not valid YAML: "),
        ("\tx: 1", "is not valid YAML: line 1, column 1"),
        ("a: 1\n---\nb: 2", "line 2: a second document starts; a file holds one job"),
        (
            "a: !!python/object:os.system x",
            'line 1: the tag "tag:yaml.org,2002:python/object:os.system" is not allowed',
        ),
        ("a: !x {}", 'line 1: the tag "!x" is not allowed'),
        ("a: !!int 5", 'line 1: the tag "tag:yaml.org,2002:int" is not allowed'),
        ("\n? [a]\n: b", "line 2: a field's name must be text"),
        ("a: *b", "line 1: nothing above is named by &b"),
        ("a: &b [*b]", "line 1: nothing above is named by &b"),
        ("<<: 5", "line 1: << must be followed by a mapping"),
        ("just words", 'must be a mapping of fields to values, not "just words"'),
        ("- a", "must be a mapping of fields to values, not a list"),
        ("~", "must be a mapping of fields to values, not ~"),
        ("a: " + "[" * 70 + "]" * 70, "line 1: is nested more than 64 deep"),
        ("a: \ud800", "is not valid"),
    ],
)
def test_texts_that_are_no_job_are_refused_in_a_sentence(text: str, problem: str) -> None:
    message = refusal(text)
    assert message.startswith("job.yaml has 1 problem:\n  ")
    assert problem in message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1,}', "is not valid JSON: line 1, column "),
        ("", "is not valid JSON: line 1, column 1"),
        ('{"a": NaN}', "is not valid JSON: NaN is no number there"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"a": ' * 65 + "1" + "}" * 65, "is nested more than 64 deep"),
        ('{"scheduling": {"timeout": ' + "9" * 5000 + "}}", "scheduling.timeout: must be a duration of 0 or more"),
        ('{"displayName": "\\ud800"}', "displayName: is not valid Unicode"),
    ],
)
def test_json_files_are_held_to_json(text: str, problem: str) -> None:
    assert problem in refusal(text, "job.json")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ('{"\\ud800": 1, "jobSpec": 5}', ['["\\ud800"]: is no known field']),
        ('{"jobSpec": {"\\udfff": 1}}', ['jobSpec["\\udfff"]: is no known field']),
        (
            '{"labels": {"\\ud800": "x"}, "jobSpec": {}}',
            ['labels: the key "\ufffd\ufffd\ufffd" is not valid Unicode', "workerPoolSpecs: is missing"],
        ),
    ],
)
def test_half_of_a_surrogate_pair_in_a_name_is_refused_by_its_place(text: str, problems: list[str]) -> None:
    message = refusal(text, "job.json")
    assert all(problem in message for problem in problems)


@pytest.mark.timeout(60)
def test_a_billion_laughs_are_refused() -> None:
    """And not written out first: no memory would be enough."""
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    message = refusal("\n".join(lines))
    assert "its aliases make it larger than 4,194,304 characters" in message


def test_aliases_of_one_long_text_are_counted_in_full() -> None:
    message = refusal(f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]")
    assert "line 2: its aliases make it larger" in message


def test_texts_and_files_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(YAML + "#" * ((1 << 20) - len(YAML)))
    assert spec.parse_file(path).display_name == "digits"

    path.write_text(YAML + "#" * (10 << 20))
    for text in (path.read_text(), YAML + "#" * ((1 << 20) - len(YAML) + 1), "é" * (1 << 19) + "é"):
        assert "is larger than 1,048,576 bytes" in refusal(text)
    with pytest.raises(InvalidSpec, match="is larger than 1,048,576 bytes"):
        spec.parse_file(path)
    with pytest.raises(InvalidSpec, match="is larger than 1,048,576 bytes"):
        spec.parse_file("/dev/zero")


def test_files_are_read_with_and_without_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "nameless.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + YAML.replace("displayName: digits\n", "").encode())
    assert spec.parse_file(path).display_name == "nameless"
    assert spec.parse_text("\ufeff" + YAML, source="stdin").display_name == "digits"


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"none\.yaml has 1 problem:\n  cannot be read: No such file"):
        spec.parse_file(tmp_path / "none.yaml")
    with pytest.raises(
        InvalidSpec,
        match=r"Is a directory \(name a job file in it, or send its code: holdfast run --pac",
    ):
        spec.parse_file(str(tmp_path))
    binary = tmp_path / "job.yaml"
    binary.write_bytes(b"a: \xff\xfe")
    with pytest.raises(InvalidSpec, match=r"is not UTF-8 text: byte 3 is 0xff \(save it as UTF-8\)"):
        spec.parse_file(binary)


def test_a_name_that_yaml_takes_for_a_boolean_is_that_name() -> None:
    """To YAML OFF without quotes is false, and the documentation writes it so."""
    text = f"{TASK}faultTolerance: {{hangDetection: {{action: OFF}}, warm: {{mode: OFF}}}}\n"
    tolerance = spec.parse_text(text, source="s").job_spec.fault_tolerance
    assert tolerance.hang_detection.action is HangAction.OFF
    assert tolerance.warm.mode.name == "OFF"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("displayName: @x\n", "cannot start any token; put text that begins with @ in quotes"),
        (
            "jobSpec:\n\tscheduling: {}\n",
            "cannot start any token; it is a tab: indent with blanks",
        ),
        (f"{TASK}faultTolerance: {{hangDetection: {{action: off}}}}\n", "not off (did you mean OFF?)"),
    ],
)
def test_an_oddity_of_yaml_is_told_with_what_to_write(text: str, said: str) -> None:
    assert said in refusal(text)
