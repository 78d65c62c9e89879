"""Runs the trainer from its command line to its last file: stopped, killed and gone on with, it ends as it would have.

Usage: train.py PRETRAIN, the program. The text it learns are headers of this repository.
"""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from checks import checks  # noqa: E402

PROGRAM = os.path.abspath(sys.argv[1])
TEXT = os.path.join(ROOT, "include", "fathom", "core")
OF_THE_MOMENT = {"seconds", "tokens_per_second", "share_of_peak", "resident_bytes"}
STOPPED = 130
# Without the first options OpenMPI refuses root, and more ranks than cores.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]


def train(run, *options, data=(TEXT,), launcher=()):
    """Runs it to its end; gives exit status and all that it printed."""
    named = ["--data", *data] if data else []
    done = subprocess.run([*launcher, PROGRAM, *named, "--run", run, "--sample-tokens", "4", *options],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def train_until(step, sent, run, *options, launcher=()):
    """Runs it, sends a signal when a step is logged, and gives what `train` gives."""
    command = [*launcher, PROGRAM, "--data", TEXT, "--run", run, "--log", "/dev/stdout", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        text = ""
        for line in child.stdout:
            text += line
            if f'{{"kind": "step", "step": {step},' in line:
                child.send_signal(sent)
        return child.wait(), text


def log_of(run):
    with open(os.path.join(run, "log.jsonl"), encoding="utf-8") as lines:
        return [{key: value for key, value in json.loads(line).items() if key not in OF_THE_MOMENT} for line in lines]


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def saves(run):
    return sorted(name for name in os.listdir(run) if name.startswith("step_"))


def expect(failures, holds, what, text=""):
    if not holds:
        failures += [what, *text.splitlines()[-15:]]


def whole_run(run):
    """The run that was not stopped; its files are what they promise to be."""
    failures = []
    status, text = train(run, "--steps", "6", "--evaluate-every", "2")
    expect(failures, status == 0, f"exit status {status}, expected 0", text)
    expect(failures, "bits a byte" in text and "beaten" in text, "no validation loss beside that of bigrams", text)
    config = json.loads(read(run, "model", "config.json"))
    expect(failures, config["model_type"] == "deepseek_v3", f"model_type {config['model_type']}")
    weights = read(run, "model", "model.safetensors")
    header = json.loads(weights[8:8 + struct.unpack("<Q", weights[:8])[0]])
    expect(failures, header["lm_head.weight"]["shape"] == [4096, 256], f"lm_head {header['lm_head.weight']}")
    expect(failures, read(run, "model", "tokenizer.json") == read(run, "tokenizer.json"), "another tokenizer saved")
    lines = log_of(run)
    kinds = [line["kind"] for line in lines]
    expect(failures, kinds == ["step", "step", "evaluation"] * 2 + ["step", "step", "validation"], f"log has {kinds}")
    losses = [line["cross_entropy"] for line in lines]
    expect(failures, losses[-1] < losses[0], f"losses do not fall: {losses}")
    expect(failures, 0 < lines[-1]["bits_per_byte"] < 8, f"bits a byte: {lines[-1]}")
    expect(failures, b"<svg" in read(run, "loss.html"), "no curve in loss.html")
    expect(failures, b"--- sample 1, given:" in read(run, "samples.txt"), "no sample")
    return failures


def same_end(run, whole):
    failures = []
    expect(failures, read(run, "model", "model.safetensors") == read(whole, "model", "model.safetensors"),
           "the weights are not those of the run that was not stopped")
    return failures


def stopped_run(run, whole):
    """Stopped after a step, then the same command again."""
    failures = []
    common = ["--steps", "6", "--evaluate-every", "2"]
    status, text = train(run, *common, "--stop-after", "3")
    expect(failures, status == STOPPED and "The same command goes on" in text, f"exit status {status}", text)
    expect(failures, saves(run) == ["step_00000003"], f"saves: {saves(run)}")
    status, text = train(run, *common)
    expect(failures, status == 0 and "from step 3 of 6" in text, f"exit status {status}", text)
    expect(failures, log_of(run) == log_of(whole), f"log: {log_of(run)}")
    return failures + same_end(run, whole)


def killed_run(run, whole):
    """Killed behind a save; what was logged after it comes again."""
    failures = []
    status, text = train_until(4, signal.SIGKILL, run, "--steps", "6", "--save-every", "3")
    expect(failures, status == -signal.SIGKILL, f"exit status {status}", text)
    status, text = train(run, "--steps", "6", data=())  # its text is known
    expect(failures, status == 0 and "from step 3 of 6" in text, f"exit status {status}", text)
    return failures + same_end(run, whole)


def interrupted_run(run):
    """Ctrl-C: the step is finished and saved. Other text is refused then; --fresh begins again."""
    failures = []
    status, text = train_until(2, signal.SIGINT, run, "--minutes", "0.01")  # never fewer than ten steps
    expect(failures, status == STOPPED and "stopped; saved as" in text, f"exit status {status}", text)
    step = int(saves(run)[-1].removeprefix("step_"))
    expect(failures, step in (2, 3), f"saves: {saves(run)}")
    settings = json.loads(read(run, saves(run)[-1], "run.json"))["settings"]
    expect(failures, settings["training_steps"] == 10, f"the run keeps {settings}")
    other = [os.path.join(ROOT, "include", "fathom", "optim")]
    status, text = train(run, "--steps", "6", data=other)
    expect(failures, status == 1 and "other text" in text, f"exit status {status}", text)
    status, text = train(run, "--fresh", "--steps", "2", "--stop-after", "1", data=other)
    expect(failures, status == STOPPED and saves(run) == ["step_00000001"], f"exit status {status}", text)
    return failures


def several_ranks(run):
    """Two ranks, threads and processes, stopped and not: one end. Each shows and logs once."""
    failures = []
    whole, stopped, processes = (run + name for name in ("_whole", "_stopped", "_processes"))
    common = ["--steps", "4", "--evaluate-every", "2"]
    status, text = train(whole, *common, "--threads", "2")
    expect(failures, status == 0 and "2 ranks of" in text and text.count("bits a byte") == 1, f"exit status {status}",
           text)
    kinds = [line["kind"] for line in log_of(whole)]
    expect(failures, kinds == ["step", "step", "evaluation", "step", "step", "validation"], f"log has {kinds}")
    status, text = train_until(1, signal.SIGINT, stopped, *common, "--threads", "2")
    expect(failures, status == STOPPED and text.count("stopped; saved as") == 1, f"exit status {status}", text)
    status, text = train(stopped, "--threads", "2", data=())
    expect(failures, status == 0, f"exit status {status}", text)
    failures += same_end(stopped, whole)
    if shutil.which("mpirun") and b"MPI_Init" in read(PROGRAM):
        status, text = train_until(1, signal.SIGUSR1, processes, *common, launcher=MPIRUN)
        expect(failures, status == STOPPED and text.count("stopped; saved as") == 1, f"exit status {status}", text)
        status, text = train(processes, data=(), launcher=MPIRUN)
        expect(failures, status == 0, f"exit status {status}", text)
        failures += same_end(processes, whole)
    return failures


def refusals(folder):
    """Bad options end with 2, bad input with 1; each says what is wrong and where."""
    def file(name, contents):
        with open(os.path.join(folder, name), "wb") as made:
            made.write(contents)
        return os.path.join(folder, name)

    failures = []
    large = file("large.json", json.dumps({"model": {"type": "WordPiece"}}).encode())
    for expected, promise, options, data in [
            (2, "--nonsense", ["--nonsense"], ()),
            (2, "expected a whole number of at least 1", ["--steps", "0"], ()),
            (2, '"speed" is not known', ["--set", "speed=3"], ()),
            (2, "expected one", ["--minutes"], ()),
            (2, "expected a whole number of at least 1", ["--threads", "0"], ()),
            (2, "argument stray", ["stray"], ()),
            (1, "No such file", [], [os.path.join(folder, "missing.txt")]),
            (1, "empty file", [], [file("empty.txt", b"")]),
            (1, "zero byte at offset 3", [], [file("binary", b"ELF\0")]),
            (1, "not UTF-8 at offset 1", [], [file("latin.txt", b"\x61\xe9 ")]),
            (1, "large.json", ["--tokenizer", large], (TEXT,))]:
        status, text = train(os.path.join(folder, "run"), *options, data=data)
        expect(failures, status == expected and promise in text,
               f"{options} {data}: exit status {status}, expected {expected} and \"{promise}\"", text)
    status, text = train(os.path.join(folder, "run"), "--help", data=())
    expect(failures, status == 0 and "--data-limit" in text and "bias_update_speed" in text, "--help", text)
    return failures


def main():
    with tempfile.TemporaryDirectory() as folder:
        whole = os.path.join(folder, "whole")
        first = whole_run(whole)  # the others are held against it
        todo = checks(None)
        todo.add("train: a whole run and its files", lambda: (first, []))
        for name, check in [("stopped", stopped_run), ("killed", killed_run)]:
            todo.add(f"train: a run that is {name} and goes on ends the same",
                     lambda n=name, c=check: (c(os.path.join(folder, n), whole), []))
        todo.add("train: Ctrl-C saves, other text is refused, --fresh begins again",
                 lambda: (interrupted_run(os.path.join(folder, "interrupted")), []))
        todo.add("train: two ranks, threads and processes", lambda: (several_ranks(os.path.join(folder, "ranks")), []))
        todo.add("train: bad options and bad input", lambda: (refusals(folder), []))
        todo.run()


main()
