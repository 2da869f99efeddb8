"""Read shows any file in a bounded way, and says what to do where it cannot."""

from __future__ import annotations

import base64
import json
import os
import sys
import tracemalloc

import pytest
from pdf_writer import make_pdf

from shoal.core.conversation.messages import ImageBlock, TextBlock
from shoal.tools.read_tool import read_tool


async def test_lines_are_numbered(tool_bench):
    tool_bench.write_file("f.txt", "one\n\nthree")
    assert (
        await tool_bench.call_for_text(read_tool, file_path="f.txt") == "     1\tone\n     2\t\n     3\tthree"
    )


async def test_offset_and_limit_choose_the_lines_and_the_rest_is_mentioned(tool_bench):
    tool_bench.write_file("f.txt", "".join(f"line {n}\n" for n in range(1, 11)))
    text = await tool_bench.call_for_text(read_tool, file_path="f.txt", offset=4, limit=2)
    assert text == (
        "     4\tline 4\n     5\tline 5\n[Lines 4 to 5 of 10. Continue with offset=6, or use Grep.]"
    )
    assert "has 10 lines; there is no line 11" in await tool_bench.call_for_failure(
        read_tool, file_path="f.txt", offset=11
    )


async def test_two_thousand_lines_are_shown_and_long_lines_cut_with_their_full_size(tool_bench):
    tool_bench.write_file("f.txt", "x" * 5000 + "\n" + "y\n" * 3000)
    text = await tool_bench.call_for_text(read_tool, file_path="f.txt")
    assert "… [line cut: 2,000 of 5,000 characters shown]" in text
    assert "[Lines 1 to 2,000 of 3,001. Continue with offset=2001, or use Grep.]" in text


async def test_the_whole_output_is_bounded(tool_bench):
    tool_bench.write_file("f.txt", ("z" * 1500 + "\n") * 2000)
    text = await tool_bench.call_for_text(read_tool, file_path="f.txt")
    assert len(text) < 101_000
    assert "Continue with offset=67" in text


async def test_a_file_of_many_megabytes_is_read_only_where_needed(tool_bench):
    line = b"0123456789" * 10 + b"\n"
    with tool_bench.write_file("big.log").open("wb") as file:
        for _ in range(120):
            file.write(line * 1000)
    tracemalloc.start()
    text = await tool_bench.call_for_text(read_tool, file_path="big.log", offset=100_000, limit=3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert text.startswith("100000\t0123456789")
    assert "Lines 100,000 to 100,002 of a file of 12,120,000 bytes" in text
    assert "Continue with offset=100003" in text
    assert peak < 8_000_000
    assert "has 120,000 lines" in await tool_bench.call_for_failure(
        read_tool, file_path="big.log", offset=200_000
    )
    last = await tool_bench.call_for_text(read_tool, file_path="big.log", offset=120_000)
    assert "Go on" not in last


async def test_a_sparse_gigabyte_does_no_harm(tool_bench):
    path = tool_bench.write_file("sparse", "one\ntwo\n" + "text " * 3000)
    os.truncate(path, 1 << 30)
    text = await tool_bench.call_for_text(read_tool, file_path="sparse")
    assert text.startswith("     1\tone\n     2\ttwo\n     3\ttext ")
    assert "line continues; stopped here" in text
    assert len(text) < 5000
    zeros = tool_bench.write_file("zeros")
    os.truncate(zeros, 1 << 30)
    assert "a binary file of 1,073,741,824 bytes" in await tool_bench.call_for_failure(
        read_tool, file_path="zeros"
    )


async def test_a_binary_file_is_described_by_type_and_size(tool_bench):
    tool_bench.write_file("prog", b"\x7fELF\x02\x01\0\0")
    assert "a program (ELF) of 8 bytes" in await tool_bench.call_for_failure(read_tool, file_path="prog")


async def test_an_empty_file_is_reported_as_empty(tool_bench):
    tool_bench.write_file("f")
    assert "exists and is empty" in await tool_bench.call_for_text(read_tool, file_path="f")


async def test_a_missing_file_is_reported_with_similar_paths(tool_bench):
    tool_bench.write_file("src/settings.py")
    near = await tool_bench.call_for_failure(read_tool, file_path="src/setings.py")
    assert f"Similar paths: {tool_bench.root}/src/settings.py" in near
    assert f"{tool_bench.root}/src/settings.py" in await tool_bench.call_for_failure(
        read_tool, file_path="src/settings.ts"
    )
    nowhere = await tool_bench.call_for_failure(read_tool, file_path="lib/deep/settings.py")
    assert f"the nearest existing directory is {tool_bench.root}." in nowhere
    assert "use Glob" in await tool_bench.call_for_failure(read_tool, file_path="zzzz")
    assert "does not exist" in await tool_bench.call_for_failure(read_tool, file_path="src/settings.py/x")


async def test_a_directory_is_listed_in_the_failure(tool_bench):
    tool_bench.write_file("a/x")
    tool_bench.write_file("b")
    assert "is a directory with 2 entries, not a file:\na/\nb" in await tool_bench.call_for_failure(
        read_tool, file_path="."
    )


async def test_pipes_and_devices_do_not_block(tool_bench):
    os.mkfifo(tool_bench.root / "pipe")
    assert "not a file" in await tool_bench.call_for_failure(read_tool, file_path="pipe")
    assert "not a file" in await tool_bench.call_for_failure(read_tool, file_path="/dev/zero")


@pytest.mark.parametrize(
    ("raw", "note"),
    [
        (b"\xef\xbb\xbfh\xc3\xa9\n", "byte-order mark"),
        ("\ufeffhé\n".encode("utf-16-le"), "utf-16-le"),
        ("hé\n".encode("latin-1"), "latin-1"),
        ("hé\r\n".encode(), "CRLF"),
    ],
)
async def test_unusual_encodings_are_read_and_reported(tool_bench, raw, note):
    tool_bench.write_file("f", raw)
    text = await tool_bench.call_for_text(read_tool, file_path="f")
    assert text.startswith("     1\thé\n[")
    assert note in text


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.mark.parametrize(
    ("raw", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0jpeg", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
async def test_images_are_recognized_by_content_not_by_name(tool_bench, raw, media_type):
    tool_bench.write_file("picture", raw)
    output, image = (await tool_bench.call_tool(read_tool, file_path="picture")).content
    assert isinstance(output, TextBlock)
    assert isinstance(image, ImageBlock)
    assert image.source.media_type == media_type
    assert base64.b64decode(image.source.data) == raw


async def test_an_image_that_is_too_large_is_refused_with_its_size(tool_bench):
    path = tool_bench.write_file("big.png", PNG[:40])
    os.truncate(path, 4_000_000)
    assert "cannot be scaled down" in await tool_bench.call_for_failure(read_tool, file_path="big.png")
    os.truncate(path, 60_000_000)
    assert "60,000,000 bytes" in await tool_bench.call_for_failure(read_tool, file_path="big.png")


async def test_a_pdf_gives_the_text_of_its_pages(tool_bench):
    tool_bench.write_file("d.pdf", make_pdf(f"Words of page {n}" for n in range(1, 26)))
    text = await tool_bench.call_for_text(read_tool, file_path="d.pdf")
    assert "--- page 1 of 25 ---\nWords of page 1" in text
    assert "page 21 of" not in text
    assert 'Continue with pages="21-25"' in text
    assert "Words of page 22" in await tool_bench.call_for_text(read_tool, file_path="d.pdf", pages="22")
    assert "Words of page 25" in await tool_bench.call_for_text(read_tool, file_path="d.pdf", pages="24-")
    for wrong in ("x", "0", "26", "5-2", "1-25"):
        assert "pages is" in await tool_bench.call_for_failure(read_tool, file_path="d.pdf", pages=wrong)


async def test_a_damaged_pdf_is_a_failure_and_nothing_is_written_to_the_screen(tool_bench, caplog):
    tool_bench.write_file("d.pdf", b"%PDF-1.4\nnonsense")
    assert "cannot be read" in await tool_bench.call_for_failure(read_tool, file_path="d.pdf")
    assert caplog.text == ""


async def test_without_the_pdf_reader_the_error_has_the_command_to_install_it(tool_bench, monkeypatch):
    tool_bench.write_file("d.pdf", b"%PDF-1.4\n")
    monkeypatch.setitem(sys.modules, "pypdf", None)
    assert "pip install 'shoal[pdf]'" in await tool_bench.call_for_failure(read_tool, file_path="d.pdf")


async def test_a_notebook_is_shown_as_cells_with_outputs(tool_bench):
    cells = [
        {"cell_type": "markdown", "id": "intro", "metadata": {}, "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "metadata": {},
            "source": "1/0",
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["printed\n"]},
                {
                    "output_type": "execute_result",
                    "data": {"text/plain": "42", "image/png": "iVBORw0KGgo=\n"},
                },
                {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mboom\x1b[0m"]},
                {"output_type": "stream", "name": "stderr", "text": "e" * 20_000},
            ],
        },
    ]
    tool_bench.write_file("n.ipynb", json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 4}))
    first, image, rest = (await tool_bench.call_tool(read_tool, file_path="n.ipynb")).content
    assert first.text.startswith(
        "<cell id=intro type=markdown>\n# Title\ntext\n</cell>\n<cell id=cell-1 type=code>"
    )
    assert "<output (stdout)>\nprinted" in first.text
    assert "<output>\n42\n</output>" in first.text
    assert image.source.data == "iVBORw0KGgo="
    assert "<error>\nboom\n</error>" in rest.text
    assert "cut: 10,000 of 20,000" in rest.text


async def test_an_invalid_image_of_a_notebook_is_left_out(tool_bench):
    outputs = [{"output_type": "display_data", "data": {"image/png": data}} for data in ("aGk=", "~", "aGk")]
    cells = [{"cell_type": "code", "source": "", "outputs": outputs}]
    tool_bench.write_file("n.ipynb", json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 4}))
    text = await tool_bench.call_for_text(read_tool, file_path="n.ipynb")
    assert text.count("(an invalid image is omitted)") == 3


async def test_an_invalid_notebook_is_read_as_text(tool_bench):
    tool_bench.write_file("n.ipynb", '{"cells": 3}')
    assert await tool_bench.call_for_text(read_tool, file_path="n.ipynb") == '     1\t{"cells": 3}'


async def test_a_file_whose_name_is_not_utf_8_is_read_by_the_name_it_is_shown_with(tool_bench):
    tool_bench.write_file(os.fsdecode(b"caf\xe9.txt"), "hello")
    listed = await tool_bench.call_for_failure(read_tool, file_path=".")
    assert "caf\\xe9.txt" in listed
    assert "hello" in await tool_bench.call_for_text(read_tool, file_path="caf\\xe9.txt")


async def test_a_nul_byte_in_the_name_is_refused_with_a_message(tool_bench):
    assert "NUL byte" in await tool_bench.call_for_failure(read_tool, file_path="a\0b")
