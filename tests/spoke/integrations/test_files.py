"""Files in allowed folders, and no way out of them."""

import os

import pytest

from contracts.errors import CallError


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "documents"
    (made / "house").mkdir(parents=True)
    (made / "house" / "boiler.txt").write_text("The boiler\nis serviced in October.\n")
    (made / "photo.jpg").write_bytes(b"\xff\xd8\0\0")
    (made / ".secret").write_text("hidden")
    (tmp_path / "outside.txt").write_text("the boiler of others")
    return made


async def test_allowed_folders_are_listed_read_and_searched(opened, folder):
    async with opened("files", folders={"documents": str(folder)}) as files:
        assert [each["path"] for each in await files.call("list_files")] == ["documents/"]
        listed = await files.call("list_files", path="documents")
        assert [(each["path"], each["size"]) for each in listed] == [
            ("documents/house/", None),
            ("documents/photo.jpg", 4),
        ]
        path = "documents/house/boiler.txt"
        assert await files.call("read", path=path, start=11) == {
            "path": path,
            "text": "is serviced in October.\n",
            "more": 0,
        }
        assert await files.call("search", words="BOILER october") == [
            {"path": path, "line": "is serviced in October."}
        ]
        assert await files.call("search", words="hidden") == []
        assert await files.answer("zeig mir die Dateien in documents", "de") is not None
        with pytest.raises(CallError, match="no text file"):
            await files.call("read", path="documents/photo.jpg")
        with pytest.raises(CallError, match="no allowed folder"):
            await files.call("list_files", path="music")


async def test_files_are_written_only_where_that_is_allowed_and_a_person_agrees(opened, folder):
    async with opened("files", folders={"documents": str(folder)}) as files:
        with pytest.raises(CallError, match="confirmation"):
            await files.call("write", path="documents/list.txt", text="milk")
        with pytest.raises(CallError, match="only be read"):
            await files.call("write", confirmed=True, path="documents/list.txt", text="milk")
    async with opened("files", folders={"documents": str(folder)}, may_write=True) as files:
        await files.call("write", confirmed=True, path="documents/list.txt", text="milk")
        with pytest.raises(CallError, match="there already"):
            await files.call("write", confirmed=True, path="documents/list.txt", text="bread")
        assert (folder / "list.txt").read_text() == "milk"
        await files.call("write", confirmed=True, replace=True, path="documents/list.txt", text="bread")
        assert (folder / "list.txt").read_text() == "bread"
        with pytest.raises(CallError, match="there is no"):
            await files.call("write", confirmed=True, replace=True, path="documents/none.txt", text="x")
        with pytest.raises(CallError, match="names a folder"):
            await files.call("write", confirmed=True, path="documents/new/", text="x")


@pytest.mark.parametrize(
    "path",
    [
        "documents/../outside.txt",
        "documents/link.txt",
        "documents/away/outside.txt",
        "documents/twice.txt",
        "documents/.secret",
        "/etc/passwd",
        "documents//etc/passwd",
        "documents/house\0/boiler.txt",
        "documents",
    ],
)
async def test_no_path_leads_out(opened, folder, tmp_path, path):
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    (folder / "away").symlink_to(tmp_path)
    os.link(tmp_path / "outside.txt", folder / "twice.txt")
    async with opened("files", folders={"documents": str(folder)}, may_write=True) as files:
        for call in (
            {"method": "read"},
            {"method": "replace", "text": "x"},
            {"method": "create", "text": "x"},
        ):
            with pytest.raises(CallError):
                await files.call(call.pop("method"), confirmed=True, path=path, **call)
        found = {each["path"] for each in await files.call("search", words="boiler")}
        assert found == {"documents/house/boiler.txt"}
    assert (tmp_path / "outside.txt").read_text() == "the boiler of others"
