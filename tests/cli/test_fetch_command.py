import json

import pytest

from cli.command import ctta
from ctta.fetch import names


def test_a_dry_run_says_source_size_digests_target_and_how_to_do_it_by_hand(tmp_path):
    result = ctta("fetch", "cifar10-c", "--to", tmp_path, "--dry-run")
    assert result.exit_code == 0, result.output
    lines = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert lines["source"].endswith("2535967/files/CIFAR-10-C.tar?download=1")
    assert lines["size"] == "2,918,471,680 bytes"
    assert lines["md5"] == "56bf5dcef84df0e2308c6dcbcbbd8499"
    assert len(lines["sha256"]) == 64
    assert lines["target"] == str(tmp_path / "CIFAR-10-C.tar")
    assert f"tar -xf CIFAR-10-C.tar -C {tmp_path}" in lines["by"]
    assert list(tmp_path.iterdir()) == []


def test_an_unpublished_digest_is_called_that(tmp_path):
    result = ctta("fetch", "cifar100-c", "--to", tmp_path, "--dry-run")
    assert "sha256   not published" in result.stdout
    said = json.loads(ctta("fetch", "cifar100-c", "--to", tmp_path, "--dry-run", "--json").stdout)
    assert said["plan"][0]["sha256"] is None


@pytest.mark.parametrize("name", names())
def test_every_name_can_be_planned_and_is_in_the_help(name, tmp_path):
    assert ctta("fetch", name, "--to", tmp_path, "--dry-run", "--json").exit_code == 0
    text = " ".join(ctta("fetch", "--help").stdout.replace("│", " ").split())
    assert name in text or name.removeprefix("imagenet-c") in text


def test_checking_a_wrong_copy_fails_with_one_line(tmp_path):
    (tmp_path / "CIFAR-10-C.tar").write_text("<html>busy</html>")
    result = ctta("fetch", "cifar10-c", "--check", tmp_path / "CIFAR-10-C.tar")
    assert result.exit_code == 1
    assert result.stderr.startswith("BadData: ")
    assert "is an HTML page (17 bytes)" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_unknown_name_suggests_the_nearest(tmp_path):
    result = ctta("fetch", "imagenetc", "--to", tmp_path)
    assert result.exit_code == 1
    assert "Did you mean 'imagenet-c'?" in result.stderr


@pytest.mark.parametrize("options", [(), ("--to", "a", "--check", "b")])
def test_a_place_is_needed(options):
    result = ctta("fetch", "cifar10-c", *options)
    assert result.exit_code == 2
    assert "--to" in result.stderr
