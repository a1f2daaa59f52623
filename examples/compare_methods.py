"""Compare methods fairly: run them, put their records into one table, and write the report. Runs offline.

An example of how to compare, not a result: with fog and pixelate instead of motion_blur and snow, and 200 images, the
differences between dmse and bn were +0.00 and -0.17 points.

The same on the command line, where the first line is repeated for source, bn and dmse:

    ctta run tent digits --images 300 --batch-size 50 --corruptions gaussian_noise,motion_blur,snow --seed 0,1
    ctta compare runs
    ctta compare runs --paired --against bn
    ctta report runs -o report.html

python examples/compare_methods.py [FOLDER FOR RUNS, REPORT AND FIGURE]
"""

import sys
from pathlib import Path

import torch

from ctta.bench.compare import rows, text_table
from ctta.bench.executors import run_jobs
from ctta.bench.folder import RunFolder
from ctta.bench.jobs import Job
from ctta.bench.paired import pair_rows, paired_table
from ctta.bench.workload import Inputs, Procedure, Workload
from ctta.errors import UnlikeRuns
from ctta.plots.errors import plot_mean_errors
from ctta.report import write_report

torch.set_num_threads(1)
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
runs = folder / "runs"

# 1. What is run. The bundled digits and network, three corruptions, two seeds. A finished run is never repeated.
inputs = Inputs("digits", "digits_resnet8", corruptions=("gaussian_noise", "motion_blur", "snow"), images=300)


def job(method: str, seed: int, batch_size: int = 50) -> Job:
    """Describe one run, with the settings published for the method."""
    return Job(Workload(Procedure(method, batch_size=batch_size, seed=seed), inputs))


jobs = [job(method, seed) for method in ("source", "bn", "tent", "dmse") for seed in (0, 1)]
records = run_jobs(jobs, runs)

# 2. One table. A row is the mean over seeds; lower is better.
table = rows(records)
print(text_table(table))

# 3. Differences on the same images. All methods see the same images, so compare them in pairs: the difference of two
#    methods varies much less than their errors. The n-th batches of all domains show the same images and count as one
#    observation; their spread gives the standard error.
print(paired_table(pair_rows(table, lambda record: RunFolder(runs / record.address).read_steps(), against="bn")))

# 4. Runs that cannot be compared. They are refused, with the reason.
try:
    rows([*records, *run_jobs([job("bn", 0, batch_size=20)], runs)])
except UnlikeRuns as error:
    print(f"refused: {str(error).splitlines()[0]}")

# 5. The report. One self-contained page with tables, plots, commands and environments; one of its plots as a figure.
print(f"report.html shows {write_report([runs], folder / 'report.html')} runs")
(folder / "compare_methods.svg").write_bytes(plot_mean_errors(table).svg())
