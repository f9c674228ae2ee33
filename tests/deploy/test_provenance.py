"""What a file tells of where it comes from, and that an edited file is refused."""
import json
import zipfile

import pytest
import torch
from torch import nn

import sot
from sot import InputSpec
from sot.deploy.errors import LoadError


@pytest.fixture
def file(tmp_path):
    return sot.save(nn.Linear(4, 2), tmp_path / "m", input_spec=[InputSpec((None, 4))])


def rewrite(path, change):
    """Write the archive again; ``change(name, data)`` answers the new data, or None to leave a part out."""
    with zipfile.ZipFile(path) as archive:
        parts = [(info.filename, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts:
            if (data := change(name, data)) is not None:
                archive.writestr(name, data)


def test_a_file_tells_what_wrote_it(file):
    found = sot.load(file).provenance
    assert found["torch"] == torch.__version__ and {"sot", "python", "written", "digest"} <= found.keys()


def test_an_edited_weight_is_refused(file):
    rewrite(file, lambda name, data: bytes(len(data)) if name.endswith("weight_0") else data)
    with pytest.raises(LoadError, match="was changed after sot.save wrote it .*weight_0"):
        sot.load(file)


@pytest.mark.parametrize("part", ["models/model.json", "extra/sot.json"])
def test_an_edited_text_is_refused(file, part):
    rewrite(file, lambda name, data: data + b" " if name.endswith(part) else data)
    with pytest.raises(LoadError, match="was changed after sot.save wrote it"):
        sot.load(file)


def test_a_part_that_is_missing_or_added_is_refused(file):
    rewrite(file, lambda name, data: None if name.endswith("byteorder") else data)
    with pytest.raises(LoadError, match="was changed after sot.save wrote it"):
        sot.load(file)


def test_a_file_without_hashes_is_refused(file):
    rewrite(file, lambda name, data: None if name.endswith("sha256") else data)
    with pytest.raises(LoadError, match="no hashes"):
        sot.load(file)


def test_the_digest_tells_of_new_hashes(file):
    digest = sot.load(file).provenance["digest"]
    sot.load(file, digest=digest)

    def forged(name, data):
        if name.endswith("sha256"):
            return json.dumps(json.loads(data), sort_keys=True, indent=1).encode()
        return data
    rewrite(file, forged)
    sot.load(file)
    with pytest.raises(LoadError, match="its digest is"):
        sot.load(file, digest=digest)
