import subprocess
import sys
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from ottla.replication.log.storage import OsStorage
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.server.cluster.coordination.sockets import listening
from ottla.server.cluster.start import worker_folders
from ottla.server.cluster.start.worker_folders import hold_folders, keep_out_workers, refuse_fewer
from ottla.server.config.worker_places import tree_socket

LOCKED = """
import sys
from ottla.replication.log.storage import OsStorage
lock = OsStorage().lock(sys.argv[1])
assert lock
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def locked():
    """Has another process hold a lock, which belongs to a process."""
    others = []

    def lock(path):
        other = subprocess.Popen(
            [sys.executable, "-c", LOCKED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        others.append(other)
        assert other.stdout.readline() == b"held\n"
        return other

    yield lock
    for other in others:
        other.kill()
        with other:  # closes its pipes and waits for it
            pass


def held(*log_dirs, count=2):
    return hold_folders(log_dirs, count, node_id=1, accepted=(), has_journal=True)


def test_a_worker_that_is_left_out_must_have_no_partition(tmp_path):
    (tmp_path / "a" / "workers" / "1" / "orders-0").mkdir(parents=True)
    (tmp_path / "b" / "workers" / "3" / "orders-1").mkdir(parents=True)
    dirs = [str(tmp_path / "a"), str(tmp_path / "b")]
    refuse_fewer(OsStorage(), dirs, 4)
    with pytest.raises(LogDirectoryProblem, match=r"Worker 3 .*orders-1.*num.workers=4.*ottla spread --workers 1"):
        refuse_fewer(OsStorage(), dirs, 1)
    with pytest.raises(LogDirectoryProblem, match="Worker 3"):
        refuse_fewer(OsStorage(), dirs, 3)


@pytest.mark.parametrize("inner", ["a/workers", "a/workers/1", "a/workers/3", "link"])
def test_log_dirs_among_the_workers_folders_are_refused(tmp_path, inner):
    (tmp_path / "link").symlink_to(tmp_path / "a" / "workers" / "1")
    for dirs in ([tmp_path / "a", tmp_path / inner], [tmp_path / inner, tmp_path / "a"]):
        with pytest.raises(
            LogDirectoryProblem, match=rf"log.dirs: .*{inner} is where the workers of .*/a have their folders"
        ):
            held(*dirs)
    assert not (tmp_path / "a").exists()
    held(tmp_path / "a", tmp_path / "a" / "b", tmp_path / "aworkers", tmp_path / "a" / "workers2").release()


def test_two_workers_never_have_one_folder_by_two_names(tmp_path):
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "workers").mkdir(parents=True)
    (tmp_path / "a" / "workers" / "1").symlink_to(tmp_path / "1")
    (tmp_path / "a" / "workers" / "2").symlink_to(tmp_path / "1")
    held(tmp_path / "a").release()  # another disk for a worker is fine
    with pytest.raises(
        LogDirectoryProblem, match=r"log.dirs: .*/a/workers/2 of worker 2 is the same as .*/a/workers/1 of worker 1"
    ):
        held(tmp_path / "a", count=3)
    with pytest.raises(LogDirectoryProblem, match=r"/a/workers/1 of worker 1 is the same as .*/1 of worker 0"):
        held(tmp_path / "a", tmp_path / "1")


def test_what_is_to_be_deleted_does_not_count(tmp_path):
    home = tmp_path / "workers" / "1"
    for name in (f"orders-0.{'a' * 32}-delete", f"orders-1.{'b' * 32}-stray", "workers"):
        (home / name).mkdir(parents=True)
    (home / "orders-2").write_text("no directory")
    (tmp_path / "workers" / "1x" / "orders-3").mkdir(parents=True)
    refuse_fewer(OsStorage(), [str(tmp_path)], 1)


def test_workers_wait_for_nobody_and_let_go(tmp_path):
    held(tmp_path).release()
    held(tmp_path).release()


def test_workers_do_not_begin_where_a_broker_runs(tmp_path, locked, monkeypatch):
    monkeypatch.setattr(worker_folders, "PATIENCE_S", 0.0)
    broker = locked(tmp_path / ".lock")
    with pytest.raises(LogDirectoryProblem, match=r"Failed to acquire lock on file .lock in"):
        held(tmp_path)
    broker.kill()
    broker.wait()
    held(tmp_path).release()


def test_workers_wait_for_those_that_are_about_to_end(tmp_path, locked):
    (tmp_path / "workers").mkdir()
    others = locked(tmp_path / "workers" / ".lock")
    others.kill()
    held(tmp_path).release()


def test_a_broker_that_is_alone_does_not_begin_where_workers_run(tmp_path, locked):
    (tmp_path / "workers").mkdir()
    keep_out_workers(OsStorage(), [str(tmp_path)]).release()
    locked(tmp_path / "workers" / ".lock")
    with pytest.raises(LogDirectoryProblem, match="workers"):
        keep_out_workers(OsStorage(), [str(tmp_path)])


def test_a_broker_that_was_always_alone_makes_nothing(tmp_path):
    assert keep_out_workers(OsStorage(), [str(tmp_path)]) is None
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_another_broker_is_refused(tmp_path):
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=x\n")
    with pytest.raises(LogDirectoryProblem, match="Configured node id 1 does not match the stored one 7"):
        held(tmp_path)


def test_a_start_waits_for_workers_of_the_one_before(tmp_path, locked, monkeypatch):
    former = tmp_path / "workers" / "1"
    former.mkdir(parents=True)
    other = locked(former / ".lock")
    looked = []

    def look_again(seconds):
        looked.append(seconds)
        other.kill()
        other.wait()

    monkeypatch.setattr(worker_folders, "time", SimpleNamespace(sleep=look_again))
    held(tmp_path).release()
    assert looked == [worker_folders.LOOK_AGAIN_S]


def test_a_start_waits_for_the_holder_of_the_tree_of_the_one_before(tmp_path, monkeypatch):
    looked = []
    with ExitStack() as former:
        (tmp_path / "workers").mkdir()
        former.enter_context(listening(str(tree_socket(tmp_path))))

        def look_again(seconds):
            looked.append(seconds)
            former.close()

        monkeypatch.setattr(worker_folders, "time", SimpleNamespace(sleep=look_again))
        held(tmp_path).release()
        assert looked == [worker_folders.LOOK_AGAIN_S]
        monkeypatch.setattr(worker_folders, "PATIENCE_S", -1.0)
        former.enter_context(listening(str(tree_socket(tmp_path))))
        with pytest.raises(LogDirectoryProblem, match="another process is using this directory"):
            held(tmp_path)
