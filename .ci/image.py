"""Build the container image without a container engine, and run it: ``python .ci/image.py DIRECTORY``.

As root, on Debian with buildah and debootstrap. Steps run in a chroot; the base image is a Debian of the
release that the Dockerfile names, with its own Python, made once. What is built runs in a mount and network
namespace of its own, without privileges, and with a root that cannot be written.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "deploy" / "container" / "Dockerfile"
IMAGE = "localhost/strawberry-home"
AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
INSIDE = "--inside"


def run(*words: str | Path, **options: Any) -> str:
    """Run a command that must succeed; return what it prints."""
    return subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE, **options).stdout.strip()


def build(work: Path) -> None:
    """Build the image in a directory, and run it."""
    engine = ("buildah", "--root", work / "storage", "--runroot", work / "run", "--storage-driver", "vfs")
    (base,) = set(re.findall(r"^FROM (\S+)", DOCKERFILE.read_text("utf-8"), re.MULTILINE))
    if base not in run(*engine, "images", "--format", "{{.Name}}:{{.Tag}}"):
        make_base(engine, base, work / "base")
    # Only this format has a health check.
    how = ("--isolation", "chroot", "--format", "docker", "--pull-never")
    subprocess.run([*engine, "bud", *how, "--file", DOCKERFILE, "--tag", IMAGE, ROOT], check=True)
    container = run(*engine, "from", "--pull-never", IMAGE)
    try:
        root = run(*engine, "mount", container)
        declared = json.loads(run(*engine, "inspect", "--type", "image", IMAGE))["Docker"]["config"]
        inside = [sys.executable, __file__, INSIDE, root, json.dumps(declared)]
        subprocess.run(["unshare", "--mount", "--net", *inside], check=True)
    finally:
        run(*engine, "rm", container)


def make_base(engine: tuple[str | Path, ...], base: str, root: Path) -> None:
    """Make the image that the Dockerfile begins with."""
    packages = "--include=python3,python3-venv,ca-certificates"
    subprocess.run(["debootstrap", "--variant=minbase", packages, base.rpartition("-")[2], root], check=True)
    (root / "usr/bin/python").symlink_to("python3")
    # What this machine trusts, so that pip in it reaches what pip here does.
    (root / AUTHORITIES).write_bytes((Path("/") / AUTHORITIES).read_bytes())
    container = run(*engine, "from", "scratch")
    run(*engine, "copy", "--quiet", container, root, "/")
    path = "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    run(*engine, "config", "--env", path, "--env", f"PIP_CERT=/{AUTHORITIES}", container)
    run(*engine, "commit", "--quiet", container, f"docker.io/library/{base}")
    run(*engine, "rm", container)


def serve(root: str, declared: dict[str, Any]) -> None:
    """Run the command of the image until it is healthy and has answered, with the ports all its own."""
    run("ip", "link", "set", "lo", "up")
    # The temporary directory, and the volume, which has the owner of its directory in the image.
    (volume,) = declared["Volumes"]
    written = {"tmp": "mode=1777", volume: "mode=0700,uid=10001,gid=10001"}
    for words in (
        ("--bind", root, root),
        ("-o", "remount,ro,bind", root),
        *(("-t", "tmpfs", "-o", mode, "tmpfs", f"{root}/{name}") for name, mode in written.items()),
        ("-t", "proc", "proc", f"{root}/proc"),
        ("--rbind", "/dev", f"{root}/dev"),
    ):
        run("mount", *words)
    environment = dict(each.split("=", 1) for each in declared["Env"])
    user = ("/usr/sbin/chroot", f"--userspec={declared['User']}", root)
    program, (_, *check) = declared["Entrypoint"], declared["Healthcheck"]["Test"]

    def tried(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([*user, *words], env=environment, capture_output=True, text=True, check=False)

    assert tried("id", "-u").stdout.strip() == declared["User"].partition(":")[0] != "0"
    assert "Read-only file system" in tried("touch", "/new").stderr
    assert tried(*program, "--version").stdout.startswith("strawberry ")
    assert tried(*check).returncode == 1
    with subprocess.Popen([*user, *program, *declared["Cmd"]], env=environment) as serving:
        deadline = time.monotonic() + declared["Healthcheck"]["StartPeriod"] / 1e9
        for words, said in ((check, "It runs."), ([*program, "chat", "turn on the lamp"], "The lamp is on.")):
            while said not in tried(*words).stdout:
                assert serving.poll() is None, "it has ended"
                assert time.monotonic() < deadline, f"{words} does not say {said}"
                time.sleep(1)
        serving.terminate()
    assert serving.returncode == 0
    sys.stdout.write("The image serves, is healthy, answers, and ends on SIGTERM.\n")


if __name__ == "__main__":
    if sys.argv[1] == INSIDE:
        serve(sys.argv[2], json.loads(sys.argv[3]))
    else:
        directory = Path(sys.argv[1]).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        build(directory)
