"""Packaged code in a job spec."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import spec
from holdfast.errors import InvalidSpec
from holdfast.spec.models.references import bundles, unusable_packages

DIGEST = "ab" * 32


def job(**task: Any) -> spec.JobSpec:
    kind = "pythonPackageSpec" if "pythonModule" in task else "processSpec"
    return spec.parse({"workerPoolSpecs": [{"replicaCount": 1, kind: task}]}).job_spec


def test_code_goes_to_the_wire_and_back() -> None:
    code = {"bundle": DIGEST, "requirements": ["numpy==2.1.0"], "packages": ["dist/a.whl", "https://x/b.whl"]}
    read = job(command=["python3", "t.py"], packagedCode=code)
    assert spec.from_proto(spec.to_proto(read)) == read
    assert spec.to_dict(read)["workerPoolSpecs"][0]["processSpec"]["packagedCode"] == code
    assert list(bundles(read)) == [("jobSpec.workerPoolSpecs[0].processSpec.packagedCode.bundle", DIGEST)]
    assert unusable_packages(read) == []


@pytest.mark.parametrize("bundle", ["x", "AB" * 32, "ab" * 31, "../" + "ab" * 30])
def test_a_bundle_is_a_hash(bundle: str) -> None:
    with pytest.raises(InvalidSpec, match=r"bundle: must be a SHA-256|bundle: .*at most 64"):
        job(command=["x"], packagedCode={"bundle": bundle})


def test_a_hundred_package_uris_and_no_more() -> None:
    assert job(pythonModule="m", packageUris=["https://x/a.whl"] * 100)
    with pytest.raises(InvalidSpec, match="packageUris: has 101 entries; at most 100"):
        job(pythonModule="m", packageUris=["https://x/a.whl"] * 101)
    with pytest.raises(InvalidSpec, match="packages: has 101 entries"):
        job(command=["x"], packagedCode={"packages": ["https://x/a.whl"] * 101})


def test_an_image_is_no_longer_asked_for() -> None:
    read = job(pythonModule="m", packageUris=["https://x/a.whl"])
    assert spec.warnings(read) == []


@pytest.mark.parametrize(
    ("uri", "bundle", "complaint"),
    [
        ("gs://b/x.tar.gz", "", "hosts can't fetch gs: URIs"),
        ("s3://b/x.tar.gz", DIGEST, "hosts can't fetch s3: URIs"),
        ("dist/x.whl", "", "is a local path, and no bundle is named that holds it"),
        ("/dist/x.whl", DIGEST, "is no path within the bundle"),
        ("../x.whl", DIGEST, "is no path within the bundle"),
        ("dist/x.whl", DIGEST, None),
        ("HTTPS://x/x.whl", "", None),
        ("file:///x/x.whl", "", None),
    ],
)
def test_packages_that_no_host_can_fetch_are_named(uri: str, bundle: str, complaint: str | None) -> None:
    found = unusable_packages(job(pythonModule="m", packageUris=[uri], bundle=bundle))
    assert [v.problem for v in found] == ([complaint] if complaint else [])
    assert all(
        v.path == "jobSpec.workerPoolSpecs[0].pythonPackageSpec.packageUris[0]" and v.fix is not None for v in found
    )
