"""The checksum that is loaded past its package's front door is the package's."""

import subprocess
import sys

import crc32c as package

from ottla.wire import checksum


def test_it_is_crc_32c():
    assert checksum.crc32c(b"123456789") == 0xE3069283
    assert checksum.crc32c(memoryview(b"56789"), checksum.crc32c(b"1234")) == 0xE3069283


def test_it_equals_the_package_after_both_are_loaded():
    data = bytes(range(256)) * 100
    assert checksum.crc32c(data) == package.crc32c(data) == checksum._from_package()(data)


def test_loading_it_leaves_the_packages_command_line_alone():
    script = "import ottla.wire.checksum, sys; print('crc32c' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "False"


def test_a_file_that_is_no_extension_is_passed_over(tmp_path):
    path = tmp_path / "broken.so"
    path.write_bytes(b"not an extension")
    assert checksum._load(str(path)) is None
