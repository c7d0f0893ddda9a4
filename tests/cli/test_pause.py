"""`headway pause` and `headway resume`."""

from __future__ import annotations

from tests.cli.terminal import Terminal


async def test_controller_is_paused_and_resumed(headway: Terminal) -> None:
    """`list` shows the pause, and a second call changes only its reason."""
    for reason, told in (("an audit", "is paused"), ("a repair", "was paused already")):
        done = await headway("pause", "staff/teams", "--reason", reason)
        assert (done.returncode, done.stdout) == (0, f"staff/teams {told}\n")
        listed = (await headway("list", "pause")).stdout
        assert ("staff/teams" in listed, reason in listed) == (True, True)
    for told in ("is resumed", "was not paused"):
        done = await headway("resume", "staff/teams")
        assert (done.returncode, done.stdout) == (0, f"staff/teams {told}\n")
    assert "staff/teams" not in (await headway("list", "pause")).stdout


async def test_pause_of_a_controller_that_no_process_runs_is_stored_with_a_warning(headway: Terminal) -> None:
    """It may be about to start, or its name may be mistyped."""
    done = await headway("pause", "staff/teems")
    assert (done.returncode, done.stdout) == (0, "staff/teems is paused\n")
    assert done.stderr == (
        "Warning: staff/teems is stored as paused, but no process runs it; did you mean 'staff/teams'?\n"
    )
    assert (await headway("pause", "staff/teams")).stderr == ""
