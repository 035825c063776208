"""``strawberry agents new`` and ``check``, which need no hub."""

import json
import re
from pathlib import Path

from hub_agent.agents.agent import parse_agent, template
from tests.deploy.strawberry import environment_of, run

MODEL = '[[models]]\nname = "house"\nprovider = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\n'
COOK = """\
prompt: Cook.
model: [horse]
tools:
  - python: cook.py:broken
  - python: cook.py:gone
  - http: rate
    description: Gives a rate.
    url: https://api.example.com/rate
    headers: {X-Key: "${RATE_KEY}"}
"""


def test_a_new_agent_is_begun_and_checked(tmp_path: Path) -> None:
    environment = environment_of(tmp_path)
    (tmp_path / "strawberry.toml").write_text(MODEL)
    assert run(environment, "agents", "check").stdout == "There are no agents beside the assistant.\n"
    begun = run(environment, "agents", "new", "finance", "--json")
    assert json.loads(begun.stdout) == {"name": "finance", "file": str(tmp_path / "agents" / "finance.yml")}
    checked = run(environment, "agents", "check")
    assert (checked.returncode, checked.stdout) == (0, "finance: ok\n")
    again = run(environment, "agents", "new", "finance")
    assert (again.returncode, "is there already" in again.stderr) == (1, True)
    for name in ("assistant", "../finance", "a b", ""):
        assert run(environment, "agents", "new", name).returncode == 1
    assert [file.name for file in (tmp_path / "agents").iterdir()] == ["finance.yml"]


def test_a_check_names_file_and_line_and_what_to_do(tmp_path: Path) -> None:
    environment = environment_of(tmp_path)
    (tmp_path / "strawberry.toml").write_text(MODEL)
    agents = tmp_path / "agents"
    agents.mkdir()
    (agents / "cook.yml").write_text(COOK)
    (agents / "cook.py").write_text("def broken(**all): ...\n")
    (agents / "poet.yml").write_text("prompt: Rhyme.\nmodle: house\n")
    (agents / "tailor.yaml").write_text("prompt: Sew.\n")
    checked = run(environment, "agents", "check")
    assert checked.returncode == 1
    assert checked.stdout.splitlines() == [
        f"cook: {agents}/cook.yml:2: horse: there is no such model",
        "  The entries of [[models]] are: house.",
        f"cook: {agents}/cook.yml:4: {agents}/cook.py: broken: **all cannot be described",
        "  name every parameter, or take a list",
        f"cook: {agents}/cook.yml:5: {agents}/cook.py has no function gone",
        f"cook: {agents}/cook.yml:6: RATE_KEY is not set",
        f"  Add the line RATE_KEY=… to {tmp_path}/.env.",
        f"poet: {agents}/poet.yml:2: unknown setting 'modle'; did you mean 'model'?",
    ]
    assert f"{agents}/tailor.yaml is not read" in checked.stderr
    (tmp_path / ".env").write_text("RATE_KEY=1234\n")
    (told,) = json.loads(run(environment, "agents", "check", "cook", "--json").stdout)
    assert (told["ok"], len(told["problems"])) == (False, 3)
    assert "nope.yml" in run(environment, "agents", "check", "nope").stderr


def test_the_doctor_names_a_broken_agent(tmp_path: Path) -> None:
    environment = environment_of(tmp_path)
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "poet.yml").write_text("prompt: Rhyme.\nmodle: house\n")
    told = run(environment, "doctor").stdout
    assert f"{tmp_path}/agents/poet.yml:2: unknown setting 'modle'" in told


def test_what_the_template_shows_in_comments_is_right(tmp_path: Path) -> None:
    text = template("my-agent")
    parse_agent(tmp_path, "my-agent", text)
    shown = re.sub(r"^#  - ", "  - ", text, flags=re.MULTILINE)
    shown = re.sub(r"^#   ( +)", r"   \1", shown, flags=re.MULTILINE)
    shown = re.sub(r"^#(  read_only|  allow)", r"\1", shown.replace("  allow: []\n", ""), flags=re.MULTILINE)
    shown = re.sub(r"^# (model:$|data_dir|quota|  [a-z_]+: )", r"\1", shown, flags=re.MULTILINE)
    agent = parse_agent(tmp_path, "my-agent", shown)
    profile = agent.profile
    assert len(profile.tools) == 6
    assert profile.skills.read_only
    assert profile.data_dir == "data/my-agent"
    assert agent.own_model.api_key_env == "MY_AGENT_API_KEY"
