"""An encode run: base → experts → samples → code → decode → results."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coin.codes.code import Code
from coin.decoders import Decoder
from coin.generator import Generator, check_generator
from coin.lab.artifacts import Expert, Source, Workshop, kept, load_expert, stretched
from coin.lab.coded import save
from coin.lab.console import Problems, check_switches, say
from coin.lab.journal import Journal, Kept, Subject
from coin.lab.ledger import Ledger
from coin.lab.loggers import Logs
from coin.lab.store import Artifact, Store, digest_of_file
from coin.lab.trial import Results, Trial
from coin.problem.memory import Memory
from coin.problem.statistics import Statistics
from coin.problem.tuning import Tuner
from coin.training.checkpoints import check_minutes
from coin.training.models import Model, network_of
from coin.training.pretraining import Rotations
from coin.training.ranks import is_first
from coin.training.samples import Queries, Samples, draw, draw_queries
from coin.training.trainers import Trainers, trainer_recipe


@dataclass(kw_only=True)
class Run:
    """What is known of a run beside its experiment: where it writes, what its parts are called, and all its settings.

    `group` is what the runs of a sweep share; a run with an `id` goes on as the same one when it is started again.
    """

    folder: Path
    names: Mapping[str, str]  # experiment, code, decoder, tuning, model
    settings: Mapping[str, Any]
    keep: Callable[[Results], None]  # writes them down, before anything else is told of them
    sweep: str | None = None
    group: str | None = None
    id: str | None = None

    @property
    def name(self) -> str:
        return "-".join(self.names[key] for key in ("code", "decoder", "experiment"))

    def subject(self, experiment: "Experiment") -> Subject:
        """Dashboards group by names and numbers, so these stand at the top."""
        data = [source.data for source in experiment.experts.values()]
        numbers = {"samples": experiment.samples, "seed": experiment.seed, "N": len(data), "K": experiment.classes}
        told = {**self.names, "sweep": self.sweep, **numbers, "data": sorted({d.name for d in data})}
        tags = [self.names["experiment"], self.names["code"], self.names["decoder"], *filter(None, [self.sweep])]
        return Subject(
            name=self.name,
            job_type="encode",
            config={**told, "settings": self.settings},
            group=self.group,
            tags=tags,
            id=self.id,
        )


@dataclass(kw_only=True)
class Experiment:
    """What a run is told, and the run itself. `trainer` fine-tunes experts; `coding_trainer` is for all else."""

    experts: Mapping[str, Source]
    model: Model
    pretraining: Rotations
    code: Code
    decoder: Decoder
    tuning: Tuner
    trainer: Trainers
    coding_trainer: Trainers
    store: Store
    logger: Logs
    samples: int = 200  # P, over all experts
    beta: Sequence[float] | None = None  # equal
    coded: int | None = None  # N_c; as many as the generator has rows, or one
    generator: Sequence[Sequence[float]] | None = None  # of several coded networks: the best there is
    calibration: int = 0  # unlabelled queries an expert that the decoder is fitted on, instead of the samples
    traffic: bool = False  # these are one half of the test images, and the other half is scored
    seed: int = 0  # of the draw of the samples
    batch_statistics: Statistics = "average"  # of BatchNorm in the coded network, where experts trained them
    stretch: float = 1.0  # experts become θ_0 + stretch (θ_i − θ_0)
    train_missing: bool = True
    save_coded: bool = True
    checkpoint_minutes: float = 5
    compile: bool = False
    rows: Generator = field(default=(), init=False, repr=False)
    drawn: Samples | None = field(default=None, init=False, repr=False)
    queries: Sequence[Queries] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        """All that is wrong with it is said at once, before anything is trained."""
        problems, count = Problems(), len(self.experts)
        data = [source.data for source in self.experts.values()]
        self.rows = problems.attempt(check_generator, self.generator, self.coded, self.beta, count) or ()
        problems.attempt(check_minutes, self.checkpoint_minutes)
        problems.attempt(check_switches, vars(self), ("train_missing", "save_coded", "compile", "traffic"))
        self.drawn = problems.attempt(draw, data, self.samples, self.seed)
        if self.traffic and self.calibration == 0:
            problems.add("traffic=true: says which queries calibrate the decoder; give their number, calibration=1000")
        if self.drawn and self.calibration != 0:
            drawing = (data, self.calibration, self.samples, self.seed, self.traffic)
            self.queries = problems.attempt(draw_queries, *drawing) or ()
        if self.drawn:
            problems.attempt(self.code.check, len(self.drawn.labels))
            problems.attempt(self.tuning.check, self.code, len(self.drawn.labels), count)
        for d in data:
            problems.attempt(self.model.check, d)
        if not (isinstance(self.stretch, int | float) and math.isfinite(self.stretch)):
            problems.add(f"stretch={self.stretch}: must be a number; 1 leaves the experts as they are")
        if self.batch_statistics not in ("average", "samples"):
            problems.add(f"batch_statistics={self.batch_statistics}: must be average or samples")
        if len({source.finetune.batch_norm for source in self.experts.values()}) > 1:
            problems.add("finetune.batch_norm: experts that are coded together must have trained the same of BatchNorm")
        for name, source in self.experts.items():
            if source.path is not None and not Path(source.path).exists():
                problems.add(f"experts.{name}.path={source.path}: no such file or folder; give an expert's or null")
        problems.check()

    def run(self, run: Run, memory: Memory) -> Results:
        """What goes into results.json; the run's folder gets coded.safetensors and the log."""
        with self.logger.open(run.folder, run.subject(self)) as journal:
            return self.recorded(run, memory, journal)

    def recorded(self, run: Run, memory: Memory, journal: Journal) -> Results:
        assert self.drawn is not None
        workshop = self.workshop(run)
        with journal.phase("experts"):
            base = workshop.base(self.classes)
            journal.used(kept("base", base))
            theta_0 = network_of(self.model, base.tensors(), self.classes)
            experts = [self.expert(workshop, base, name, journal) for name in self.experts]
        if self.stretch != 1:
            experts = [stretched(expert, theta_0, self.stretch) for expert in experts]
        trial = Trial(
            experts=experts,
            base=theta_0,
            code=self.code,
            decoder=self.decoder,
            tuner=self.tuning,
            generator=self.rows,
            samples=self.drawn,
            seed=self.seed,
            make_trainer=self.coding_trainer,
            ledger=Ledger(store=self.store, setting=self.setting(), memory=memory, journal=journal),
            queries=self.queries,
            batch_statistics=self.statistics,
        )
        finished = trial.run()
        results = {**run.names, **finished.results, "contents": self.contents()}
        if self.save_coded and is_first():
            save(run.folder, finished.coded, finished.decoder, self.facts(experts, results))
            for file in sorted(run.folder.glob("*.safetensors")):
                journal.made(Kept("coded", "-".join([run.name, file.stem]), digest_of_file(file)[:10], file, run.names))
        run.keep(results)
        journal.told(results)
        return results

    def setting(self) -> dict[str, Any]:
        """What outputs and Fishers depend on beside the weights and the inputs."""
        found = {"architecture": self.model.shape(), "trainer": trainer_recipe(self.coding_trainer.settings)}
        return found if self.statistics == "equal" else {**found, "statistics": self.statistics}

    @property
    def statistics(self) -> Statistics:
        """Of BatchNorm in the coded network."""
        trained = any(source.finetune.batch_norm == "trained" for source in self.experts.values())
        return self.batch_statistics if trained else "equal"

    @property
    def classes(self) -> int:
        """K: heads have as many outputs as the expert with the most classes needs."""
        return max(source.data.num_classes for source in self.experts.values())

    def facts(self, experts: Sequence[Expert], results: Results) -> dict[str, Any]:
        """What stands in coded.safetensors beside the tensors."""
        told = ("experiment", "code", "decoder", "samples", "seed", "hyperparameters")
        return {
            "model": self.model.facts(),
            "num_classes": self.classes,
            "experts": [
                {
                    "name": expert.name,
                    "data": expert.data.name,
                    "labels": expert.data.labels,
                    "preparation": expert.data.preparation(),
                    "path": str(expert.path.resolve()),
                    "sha256": expert.digest,
                }
                for expert in experts
            ],
            "generator": results["generator"],
            "features": self.decoder.features,
            "recipe": {key: results[key] for key in told},
        }

    def workshop(self, run: Run | None = None) -> Workshop:
        return Workshop(
            store=self.store,
            model=self.model,
            pretraining=self.pretraining,
            trainer=self.trainer,
            logger=self.logger,
            folder=run.folder if run else None,
            train_missing=self.train_missing,
            checkpoint_minutes=self.checkpoint_minutes,
            compile=self.compile,
        )

    def expert(self, workshop: Workshop, base: Artifact, name: str, journal: Journal | None = None) -> Expert:
        source = self.experts[name]
        path = source.path
        if path is None:
            made = workshop.expert(base, source.data, source.finetune)
            path = str(made.path)
            if journal:
                journal.used(kept("expert", made))
        say(f"expert {name}: {path}")
        return load_expert(name, path, self.model, base, source.data, batch_norm=source.finetune.batch_norm)

    def contents(self) -> dict[str, str]:
        """What lies where the paths of its config point, by the path's key: moved data are the same data."""
        found = {"model.weights": str(self.model.recipe()["weights"])}
        if self.model.weights == "rotations":
            found["pretraining.data.root"] = self.pretraining.data.recipe()["contents"]
        for name, source in self.experts.items():
            found |= source.contents(name)
        return found
