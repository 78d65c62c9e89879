"""Runs the job script of docs/launching.md under a Slurm of one node: signalled before its time is over it saves, is
put in line again, resumes and ends.

Only in `./dev test --all`, and where Slurm and MPI are. The daemons are the user's own, with ports, keys and files of
their own in a scratch folder. Usage: run.py PRETRAIN, the program.
"""
import contextlib
import getpass
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from checks import checks  # noqa: E402

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
# What the page asks of a cluster, and what is asked of this machine. Slurm looks at the clock every 30 s and sends the
# signal up to that much earlier: of three minutes, 30 to 60 s after the start. All else is run as it stands.
SHORTENED = {"--nodes=2": "--nodes=1", "--ntasks-per-node=8": "--ntasks-per-node=2",
             "--cpus-per-task=4": "--cpus-per-task=1", "--time=04:00:00": "--time=00:03:00"}
# A job that goes in line again waits as long as a credential lives, here 5 s instead of 120.
CONFIGURATION = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 Boards=1 SocketsPerBoard=1 CoresPerSocket=16 ThreadsPerCore=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
# The program of the page: small text, few steps; how many, the check says while the job is in line again.
PRETRAIN = """#!/bin/sh
exec '{program}' --data '{root}/include/fathom/core' --steps "$(cat steps)" --sample-tokens 4 "$@"
"""
MORE = 4  # steps of the run that resumes


def job_script():
    with open(os.path.join(ROOT, "docs", "launching.md"), encoding="utf-8") as page:
        [text] = re.findall(r"^```bash\n(#!/bin/bash\n.*?^)```$", page.read(), re.MULTILINE | re.DOTALL)
    for shown, short in SHORTENED.items():
        if text.count(shown) != 1:
            raise ValueError(f"docs/launching.md: found {shown} {text.count(shown)} times in the job, expected once")
        text = text.replace(shown, short)
    return text


def free_ports(count):
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_for(what, holds, limit):
    """What `holds` gives once it gives anything."""
    end = time.monotonic() + limit
    while not (found := holds()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what} was waited for {limit} s")
        time.sleep(0.1)
    return found


def read(*path):
    try:
        with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


class cluster:
    """Slurm's daemons on this machine, while the context lasts."""

    def __init__(self, folder):
        self.folder, self.daemons = folder, []
        self.environment = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf", "OMPI_MCA_mpi_yield_when_idle": "1"}

    def ask(self, *command, cwd=None):
        return subprocess.run(command, env=self.environment, cwd=cwd, capture_output=True, encoding="utf-8",
                              errors="replace", timeout=60)

    def begin(self, name, *options):
        with open(os.path.join(self.folder, name + ".log"), "wb") as log:
            self.daemons.append(subprocess.Popen([name, *options], env=self.environment, stdin=subprocess.DEVNULL,
                                                 stdout=log, stderr=log, start_new_session=True))

    def __enter__(self):
        try:
            os.chmod(self.folder, 0o755)  # munged lets everybody to its socket
            for name in ("state", "spool"):
                os.mkdir(os.path.join(self.folder, name))
            with open(os.path.join(self.folder, "munge.key"), "wb") as key:
                os.chmod(key.name, 0o400)
                key.write(os.urandom(1024))
            with open(os.path.join(self.folder, "slurm.conf"), "w", encoding="utf-8") as file:
                file.write(CONFIGURATION.format(host=socket.gethostname().split(".")[0], user=getpass.getuser(),
                                                folder=self.folder, ports=free_ports(2)))
            places = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munge.pid",
                      "log-file": "munge.messages", "seed-file": "munge.seed"}
            self.begin("munged", "--foreground", "--force",
                       *(f"--{option}={self.folder}/{name}" for option, name in places.items()))
            wait_for("munged's socket", lambda: os.path.exists(f"{self.folder}/munge.socket"), 30)
            self.begin("slurmctld", "-D")
            self.begin("slurmd", "-D")
            wait_for("a node", lambda: " State=IDLE " in self.ask("scontrol", "--oneliner", "show", "node").stdout, 60)
        except Exception as problem:
            self.__exit__()
            raise RuntimeError("\n# ".join([str(problem), *self.messages()])) from problem
        return self

    def __exit__(self, *_):
        # A step ends only with both daemons and their keys there, so jobs go first and munged last.
        if len(self.daemons) > 1:
            self.ask("scancel", "--state=PENDING", "--user", getpass.getuser())
            self.ask("scancel", "--user", getpass.getuser())
            with contextlib.suppress(TimeoutError):
                wait_for("an empty queue", lambda: not self.ask("squeue", "--noheader").stdout.strip(), 60)
                wait_for("the last step", lambda: not self.steps(), 30)
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def steps(self):
        """What leaves a socket in slurmd's folder while it is there."""
        return [name for name in os.listdir(os.path.join(self.folder, "spool")) if re.fullmatch(r".*_\d+\.\d+", name)]

    def messages(self):
        return [line for name in ("munged", "slurmctld", "slurmd")
                for line in read(self.folder, name + ".log").splitlines()[-15:]]


def job(slurm, number):
    """All that Slurm says of it, by its words."""
    shown = slurm.ask("scontrol", "--oneliner", "show", "job", number).stdout
    return dict(word.split("=", 1) for word in shown.split() if "=" in word)


def check_job(program):
    failures = []

    def expect(holds, what):
        if not holds:
            failures.append(what)

    with tempfile.TemporaryDirectory() as folder, cluster(folder) as slurm:
        home = os.path.join(folder, "home")
        os.mkdir(home)
        # More steps than there is time for; then a few more than the save has.
        for name, text in (("job.sh", job_script()), ("steps", "1000000"),
                           ("pretrain", PRETRAIN.format(program=program, root=ROOT))):
            with open(os.path.join(home, name), "w", encoding="utf-8") as file:
                file.write(text)
        os.chmod(os.path.join(home, "pretrain"), 0o755)
        submitted = slurm.ask("sbatch", "--parsable", "job.sh", cwd=home)
        number = submitted.stdout.strip()
        if submitted.returncode or not number.isdigit():
            return [f"sbatch: status {submitted.returncode}", *submitted.stderr.splitlines()], []
        output = os.path.join(home, f"pretrain-{number}.log")
        ended = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")

        def stopped():
            return re.search(r"stopped; saved as runs/tiny/step_0*(\d+)\.", read(output)) or (
                job(slurm, number).get("JobState") in ended and "ended")

        try:
            found = wait_for("a save on Slurm's signal", stopped, 300)
            if found == "ended":
                return ["the job ended before Slurm's signal", *read(output).splitlines()[-40:]], []
            saved = int(found.group(1))
            with open(os.path.join(home, "steps.new"), "w", encoding="utf-8") as file:
                file.write(str(saved + MORE))
            os.replace(file.name, os.path.join(home, "steps"))
            wait_for("the end of the job", lambda: job(slurm, number).get("JobState") in ended, 300)
        except TimeoutError as problem:
            return [str(problem), str(job(slurm, number)), *read(output).splitlines()[-40:], *slurm.messages()], []
        seen, text = job(slurm, number), read(output)
        expect(seen["JobState"] == "COMPLETED", f"the job ended as {seen['JobState']}, {seen['ExitCode']}")
        expect(seen["Restarts"] == "1", f"Slurm started it again {seen['Restarts']} times, expected once")
        expect(text.count("2 ranks of 1 workers") == 2, "not twice two ranks of one worker")
        expect(f"going on    from step {saved} of {saved + MORE}" in text, f"did not go on from step {saved}")
        lines = map(json.loads, read(home, "runs", "tiny", "log.jsonl").splitlines())
        steps = [line["step"] for line in lines if line["kind"] == "step"]
        expect(steps == [*range(1, saved + MORE + 1)], f"steps: {steps}, expected 1 to {saved + MORE}, each once")
        return [*failures, *text.splitlines()[-40:]] if failures else [], []


def main():
    name = "slurm: the job of docs/launching.md saves on Slurm's signal, is put in line again and resumes"
    program = os.path.abspath(sys.argv[1])
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # the daemons' place, which users do not search
    todo = checks(None)
    missing = [needed for needed in NEEDED if not shutil.which(needed)]
    with open(program, "rb") as file:
        if b"MPI_Init" not in file.read():
            missing.append("MPI")
    if not os.environ.get("FATHOM_TEST_ALL"):
        todo.skip(name, "only with --all")
    elif missing:
        todo.skip(name, f"no {', '.join(missing)} here")
    else:
        todo.add(name, lambda: check_job(program))
    todo.run()


main()
