"""Every error mmdb raises, one class and one SQLSTATE each.

The same class reaches Python through either engine: inside PostgreSQL an error
travels as its SQLSTATE, message and hint, and `from_sqlstate` rebuilds it at
the client.

    MmdbError                    MM000
    ├── InputError               MM100   the caller can mend the call
    │   ├── QueryError           MM110   the dataset's query
    │   ├── DataError            MM120   the rows that the query returned
    │   ├── ArchitectureError    MM130   factory or layer graph
    │   ├── SearchError          MM140   search space and run options
    │   ├── NotFound             MM150   a name or id that does not exist
    │   ├── AlreadyExists        MM160   a name that is taken
    │   └── FileError            MM180   a file or folder to import or to write
    ├── HopError                 MM200   one hop could not be done
    ├── RunError                 MM300   a run cannot go on
    └── EngineError              MM400   the database or its set-up
"""

from __future__ import annotations

import signal
import threading
from typing import ClassVar


class MmdbError(Exception):
    """mmdb could not do what was asked."""

    sqlstate: ClassVar[str] = "MM000"
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        self.message = message or (type(self).__doc__ or "").splitlines()[0]
        self.hint = hint or self.default_hint
        super().__init__(self.message)

    def __init_subclass__(cls, *, sqlstate: str = "") -> None:
        cls.sqlstate = sqlstate or cls.sqlstate

    def __str__(self) -> str:
        return f"{self.message}\nHINT: {self.hint}" if self.hint else self.message


class InputError(MmdbError, sqlstate="MM100"):
    """The call cannot be carried out as it was written."""


# -- the dataset's query ------------------------------------------------------


class QueryError(InputError, sqlstate="MM110"):
    """The dataset's query cannot be used."""

    default_hint = "Pass exactly one SELECT over your tables."


class NotOneStatement(QueryError, sqlstate="MM111"):
    """The query holds more than one statement, or none."""


class NotASelect(QueryError, sqlstate="MM112"):
    """The query is not a SELECT."""

    default_hint = "A query is read, never written to: pass a SELECT that changes nothing."


class QueryFailed(QueryError, sqlstate="MM113"):
    """The database refused the dataset's query."""

    default_hint = "Run the query by itself; it must succeed there first."


class UnknownTable(QueryError, sqlstate="MM114"):
    """The query names a table that does not exist."""

    default_hint = "Check the table's name and schema, and that you may SELECT from it."


class UnknownColumn(QueryError, sqlstate="MM115"):
    """The query, or the label, names a column that does not exist."""

    default_hint = "Check the spelling, and which table of the query has the column."


# -- the rows -----------------------------------------------------------------


class DataError(InputError, sqlstate="MM120"):
    """The rows of the query cannot be trained on."""


class NullValues(DataError, sqlstate="MM121"):
    """The query returned NULLs."""

    default_hint = "Filter them out with WHERE ... IS NOT NULL, or fill them with COALESCE."


class RaggedArray(DataError, sqlstate="MM122"):
    """The arrays or byte strings of a column differ in length."""

    default_hint = "Every row of a tensor column must have the same number of elements."


class OneClass(DataError, sqlstate="MM123"):
    """The label has a single class."""

    default_hint = "A classifier needs at least two classes; check the query's WHERE clause."


class TooFewRows(DataError, sqlstate="MM124"):
    """There are more partitions than rows."""

    default_hint = "Ask for fewer partitions, or a smaller validation share."


class UnsupportedType(DataError, sqlstate="MM125"):
    """A column has a type that mmdb cannot turn into numbers."""

    default_hint = "Cast it in the query, for example extract(epoch FROM ts) or (flag)::int."


class NotFinite(DataError, sqlstate="MM126"):
    """The query returned NaN, infinite or out-of-range numbers."""

    default_hint = "Filter or clamp them in the query; float32 holds up to 3.4e38."


class TooManyCategories(DataError, sqlstate="MM127"):
    """A column has too many distinct values for one-hot inputs, or for classes."""

    default_hint = "Leave the column out of the query, or group rare values with CASE."


# -- architectures ------------------------------------------------------------


class ArchitectureError(InputError, sqlstate="MM130"):
    """The architecture cannot be built."""


class UnknownFactory(ArchitectureError, sqlstate="MM131"):
    """No factory of that name is registered."""

    default_hint = (
        "SELECT name FROM mmdb.factory shows what is registered; "
        "the owner adds more with register_factory."
    )


class FactoryNotAllowed(ArchitectureError, sqlstate="MM132"):
    """Only the owner may register a factory."""

    default_hint = "Ask the owner of schema mmdb to call mmdb.register_factory(name, target)."


class FactoryFailed(ArchitectureError, sqlstate="MM133"):
    """The factory raised, or did not return a torch.nn.Module."""

    default_hint = "Call the factory by hand with the same arguments."


class CutNotFound(ArchitectureError, sqlstate="MM136"):
    """The network has no module of that path, or it does not run."""

    default_hint = "freeze_up_to is the path of a module, such as 'layer3'."


class NotACut(ArchitectureError, sqlstate="MM137"):
    """Later layers read more of the network than the output of the module at the cut."""

    default_hint = "Freeze up to a module that everything after it depends on."


class HeadMismatch(ArchitectureError, sqlstate="MM138"):
    """The head does not fit the features, or the labels."""

    default_hint = "A head takes the pooled features of a batch and returns one output per class."


class BackboneMismatch(ArchitectureError, sqlstate="MM139"):
    """The model that is to be frozen lacks a tensor, or a column, of the layers before the cut."""

    default_hint = "warm_start names a model of the same architecture."


class OutputMismatch(ArchitectureError, sqlstate="MM134"):
    """The model's output does not fit the dataset's labels."""

    default_hint = "The last layer must have one output per class, or one for a regression."


class InvalidLayerGraph(ArchitectureError, sqlstate="MM135"):
    """The layer graph is not well formed."""

    default_hint = "docs/architectures.md shows the format and the allowed layers."


# -- runs ---------------------------------------------------------------------


class SearchError(InputError, sqlstate="MM140"):
    """The search or the run's options cannot be used."""


class EmptySearch(SearchError, sqlstate="MM141"):
    """The search space holds no candidate."""

    default_hint = "Give every dimension at least one value."


class InvalidHyperparameter(SearchError, sqlstate="MM142"):
    """A hyper-parameter has the wrong name, type or range."""

    default_hint = "docs/candidates.md lists every hyper-parameter with its type."


class InvalidOption(SearchError, sqlstate="MM143"):
    """An option has an unknown name or a wrong value."""


# -- names --------------------------------------------------------------------


class NotFound(InputError, sqlstate="MM150"):
    """There is nothing of that name or id."""


class DatasetNotFound(NotFound, sqlstate="MM151"):
    """There is no such dataset."""

    default_hint = "SELECT name FROM mmdb.dataset_overview lists the datasets."


class DatasetDropped(NotFound, sqlstate="MM152"):
    """The run's dataset has been dropped."""

    default_hint = "Create the dataset again; what is to be trained on it needs a new run."


class RunNotFound(NotFound, sqlstate="MM153"):
    """There is no such run."""

    default_hint = "SELECT run FROM mmdb.run_progress lists the runs."


class CandidateNotFound(NotFound, sqlstate="MM154"):
    """There is no such candidate."""

    default_hint = "SELECT candidate_id FROM mmdb.leaderboard lists the candidates."


class PartitionNotFound(NotFound, sqlstate="MM155"):
    """There is no such partition, or it is not of this run's dataset."""

    default_hint = "SELECT part_id FROM mmdb.partition_overview lists the partitions."


class ModelNotFound(NotFound, sqlstate="MM156"):
    """There is no such model."""

    default_hint = "SELECT model, version FROM mmdb.model_overview lists the models."


class AliasNotFound(NotFound, sqlstate="MM157"):
    """There is no such alias."""

    default_hint = "SELECT model, alias, version FROM mmdb.model_alias lists the aliases."


class FunctionNotFound(NotFound, sqlstate="MM158"):
    """No function of that name and kind is registered."""

    default_hint = (
        "Ask the owner of schema mmdb to call mmdb.register_function(name, target, kind)."
    )


class EntityNotFound(NotFound, sqlstate="MM159"):
    """Lineage knows nothing of that name."""

    default_hint = (
        "Name it as model:NAME@VERSION, run:NAME, dataset:NAME or column:SCHEMA.TABLE.COLUMN."
    )


class AlreadyExists(InputError, sqlstate="MM160"):
    """The name is taken."""

    default_hint = "Choose another name, or drop the old one first."


class InvalidName(InputError, sqlstate="MM161"):
    """The name is empty, too long or holds a character that is not allowed."""

    default_hint = "Use 1 to 200 letters, digits, '_', '-', '.' and '/'."


class ScheduleNotFound(NotFound, sqlstate="MM163"):
    """There is no such schedule, or it is another role's."""

    default_hint = "SELECT schedule, owner FROM mmdb.schedule_overview lists the schedules."


class ScoringNotFound(NotFound, sqlstate="MM164"):
    """No model fills that column of new rows."""

    default_hint = "SELECT table_name, column_name FROM mmdb.scoring_overview lists the columns."


class AmbiguousEntity(InputError, sqlstate="MM162"):
    """The name is that of several things."""

    default_hint = "Say which one is meant by its kind, such as dataset:NAME."


class InvalidInput(InputError, sqlstate="MM170"):
    """The value does not fit the model's input."""

    default_hint = "Pass one number per feature, or a JSON row with the dataset's columns."


class DatasetInUse(InputError, sqlstate="MM171"):
    """A run or a model still needs the dataset."""

    default_hint = "Pass force => true to drop it all the same."


class ModelInUse(InputError, sqlstate="MM172"):
    """An alias or another model still needs the model."""


class FunctionFailed(InputError, sqlstate="MM173"):
    """A registered function cannot be used, raised, or returned something else than it should."""

    default_hint = "Call the function by hand with the same arguments."


class TargetMismatch(InputError, sqlstate="MM174"):
    """Predictions cannot be written to the table."""

    default_hint = "Name a table that does not exist yet; it is then made as predictions need it."


class ReadOnly(InputError, sqlstate="MM175"):
    """A session or class that only reads was asked to write."""


class OutOfMemory(InputError, sqlstate="MM176"):
    """The call takes more memory than it may."""

    default_hint = (
        "Ask for less at a time: a smaller model, batch, row or argument. What a call may take is "
        "the owner's to say, by memory_bytes of mmdb.setting and of mmdb.role_limit, and what the "
        "machine has free."
    )


class DeviceFull(OutOfMemory, sqlstate="MM177"):
    """The device's memory does not hold what was asked of it."""

    default_hint = (
        "Use a smaller model or batch_size (accumulate keeps the rows of a step), amp, or workers "
        "on a device with more memory. MMDB_DEVICE_BYTES says what partitions may take of it."
    )


# -- files to import and to write ---------------------------------------------


class FileError(InputError, sqlstate="MM180"):
    """A file or folder cannot be imported or written."""


class FileNotRead(FileError, sqlstate="MM181"):
    """A file is missing, or may not be read."""

    default_hint = "Check the path and that this user may read it."


class FileDamaged(FileError, sqlstate="MM182"):
    """A file is cut short, damaged, or not of the format that it says."""

    default_hint = "Fetch or write the file again, and compare its size with the original's."


class UnsafeFile(FileError, sqlstate="MM183"):
    """A file carries code, or names files outside of its folder."""

    default_hint = (
        "Where you trust its source, load it with the program that wrote it and save its "
        "state_dict() with torch.save or safetensors; import that."
    )


class UnsupportedContent(FileError, sqlstate="MM184"):
    """A file holds something that is no dense tensor, or the format has no such dtype."""


class FileExists(FileError, sqlstate="MM185"):
    """There is a file or folder of that name already."""

    default_hint = "Choose another target, or pass overwrite=True (--overwrite)."


class FileNotWritten(FileError, sqlstate="MM186"):
    """The system did not let a file be written."""

    default_hint = "Check the folder, its rights and the free space of its disk."


class ImportMismatch(FileError, sqlstate="MM187"):
    """The imported tensors are not those that were exported."""

    default_hint = "The file was changed after it was written; export the model again."


# -- hops ---------------------------------------------------------------------


class HopError(MmdbError, sqlstate="MM200"):
    """The hop could not be done."""


class OutOfTurn(HopError, sqlstate="MM201"):
    """It is not this hop's turn."""

    default_hint = "Pass epoch => NULL and the partition that the hint of the message names."


class CandidateStopped(HopError, sqlstate="MM202"):
    """The candidate has failed or was stopped."""

    default_hint = "SELECT * FROM mmdb.leaderboard shows its error."


class CandidateBusy(HopError, sqlstate="MM203"):
    """Another session is training this candidate now."""

    default_hint = "Wait for that hop to end."


class NotANumber(HopError, sqlstate="MM204"):
    """The loss became NaN or infinite."""

    default_hint = "Lower the learning rate, or clip gradients."


class TrainingFailed(HopError, sqlstate="MM205"):
    """The model raised while it was trained."""

    trace: str = ""  # the end of the traceback, at most 16 KB


class ReplayMismatch(HopError, sqlstate="MM206"):
    """A replayed hop gave other bits than the hop that is stored."""

    default_hint = (
        "The hop ran with another device, torch, CPU capability or thread count: go on there, or "
        "save the model there as a snapshot. Runs with options.checkpoint 'hop' replay nothing."
    )


class StateNotFound(HopError, sqlstate="MM207"):
    """The candidate's state is not where the last hop left it."""


class StateCorrupt(HopError, sqlstate="MM213"):
    """A stored state's bytes do not match its hash."""

    default_hint = "Delete the damaged rows of mmdb.checkpoint_chunk; the hops are then replayed."


class BlockCorrupt(HopError, sqlstate="MM208"):
    """A block's bytes do not match its stored hash."""

    default_hint = "Create the dataset again; its stored rows were damaged."


class WorkerLost(HopError, sqlstate="MM210"):
    """The worker's session ended in the middle of a hop."""


class WorkerDragged(WorkerLost, sqlstate="MM212"):
    """The worker's session ended because another session of the server crashed."""


class HopTimedOut(HopError, sqlstate="MM214"):
    """The hop took longer than the run allows."""

    default_hint = "Create the run with a longer options.hop_limit_s, or a smaller model."


class PartitionEvicted(HopError, sqlstate="MM211"):
    """A partition left the node's cache before it was mapped."""

    default_hint = "Give the cache more room with MMDB_CACHE_BYTES in the server's environment."


class PartitionUnreachable(HopError, sqlstate="MM215"):
    """A partition lies on a node alone where no worker is up."""

    default_hint = "Start a worker on that node, then train the run again: it goes on."


class BackboneMissing(HopError, sqlstate="MM217"):
    """The model whose layers are frozen was dropped, and features of it are missing."""

    default_hint = "Import or save the model again, and create the run with it."


class FeatureCorrupt(HopError, sqlstate="MM218"):
    """Stored features do not match their digest."""

    default_hint = "SELECT mmdb.drop_features(dataset): they are computed again."


class RanOnCoordinator(HopError, sqlstate="MM216"):
    """A hop on Citus was not handed to the node of its partition."""

    default_hint = (
        "Call SELECT * FROM mmdb.train_hop(...) alone: outside BEGIN, without WHERE, JOIN or WITH, "
        "each argument a constant or a parameter."
    )


class PrecisionMissing(HopError, sqlstate="MM220"):
    """The worker's device does not compute in the candidate's precision."""

    default_hint = "Leave amp out, choose the other precision, or use workers on another device."


class GroupBroken(HopError, sqlstate="MM221"):
    """Another worker of the group was lost, or did not answer in time."""

    default_hint = "The round is run again; where it breaks each time, look at the other worker."


class StatesDiffer(HopError, sqlstate="MM222"):
    """States that must be of one candidate, or equal, are not."""


# -- runs under way -----------------------------------------------------------


class RunError(MmdbError, sqlstate="MM300"):
    """The run cannot go on."""


class RunBusy(RunError, sqlstate="MM301"):
    """The run is being trained by another driver."""

    default_hint = "SELECT * FROM mmdb.run_progress shows how far it is."


class RunFailed(RunError, sqlstate="MM302"):
    """Every candidate of the run has failed."""

    default_hint = "SELECT candidate_id, error FROM mmdb.leaderboard shows why."


class InTransaction(RunError, sqlstate="MM303"):
    """`train` cannot run inside a transaction block."""

    default_hint = "Run CALL mmdb.train(...) by itself, outside BEGIN ... COMMIT."


class NoWorkerLogin(RunError, sqlstate="MM304"):
    """The server has no login with which to open its worker sessions."""

    default_hint = (
        "Train from outside with `mmdb train RUN --database URL`, let `mmdb worker URL` serve the "
        "database, or let the owner set mmdb.setting 'worker_dsn': docs/running.md."
    )


class RunEnded(RunError, sqlstate="MM305"):
    """The run has ended: there is nothing left to train or to cancel."""

    default_hint = "SELECT * FROM mmdb.leaderboard shows what came of it."


class NoWorkers(RunError, sqlstate="MM306"):
    """The database has no worker processes."""

    default_hint = "Train it by `mmdb train RUN`, or start `mmdb worker URL` on PostgreSQL."


class WorkerExists(RunError, sqlstate="MM307"):
    """A worker process of that name serves already."""

    default_hint = "Choose another --name, or stop the other process first."


class NoServerFunctions(RunError, sqlstate="MM308"):
    """This database has no functions: its server has no PL/Python."""

    default_hint = "Call it from Python by mmdb.connect(url), or start workers with --mode client."


# -- the model store ----------------------------------------------------------


class StoreError(MmdbError, sqlstate="MM500"):
    """A model or a tensor cannot be kept or made again."""


class UnsupportedTensor(StoreError, sqlstate="MM501"):
    """A state dict holds a value without plain bytes."""

    default_hint = "Pass dense tensors; keep a quantized one as its integers and scales."


class TensorNotFound(StoreError, sqlstate="MM502"):
    """The model has no tensor of that path, or fewer rows."""

    default_hint = "SELECT path, shape FROM mmdb.tensor_storage lists a model's tensors."


class CorruptTensor(StoreError, sqlstate="MM503"):
    """Stored bytes are not the ones that were saved."""

    default_hint = "Restore the database's backup, or save the model again from another copy."


class DefinitionMissing(StoreError, sqlstate="MM504"):
    """The database does not know how to build the model's module."""

    default_hint = "Pass a module of the same architecture: db.recover(model, into=module)."


class ModuleMismatch(StoreError, sqlstate="MM505"):
    """The module's tensors are not those of the model."""


class NoParent(StoreError, sqlstate="MM506"):
    """An update needs a parent with the same tensors."""

    default_hint = 'Pass parent="name@version", or approach="snapshot".'


class RecipeError(StoreError, sqlstate="MM510"):
    """A model's recipe cannot be kept or followed."""


class InvalidRecipe(RecipeError, sqlstate="MM511"):
    """The recipe holds what cannot be kept, or lacks what it takes to follow it."""

    default_hint = "Arguments and states are numbers, texts, lists, dictionaries and tensors."


class UnknownTrainer(RecipeError, sqlstate="MM512"):
    """No trainer of that name is registered."""

    default_hint = "The owner registers it: register_trainer(name, 'package.module:callable')."


class TrainerFailed(RecipeError, sqlstate="MM513"):
    """The trainer cannot be imported, or raised."""

    default_hint = "Call it by hand with the same module, data and arguments."


class NotReplayable(RecipeError, sqlstate="MM514"):
    """The recipe of a model needs something that is no longer there."""


class RecipeMismatch(RecipeError, sqlstate="MM515"):
    """Following the recipe gave other weights than the model's."""

    default_hint = (
        "Follow it where it was written, with the same torch, threads and processor; "
        "a trainer that is not deterministic can only be saved by its weights."
    )


# -- engines ------------------------------------------------------------------


class EngineError(MmdbError, sqlstate="MM400"):
    """The database is not set up for mmdb."""


class WrongUrl(EngineError, sqlstate="MM401"):
    """The database URL is not understood, or nothing answers there."""

    default_hint = "Use postgresql://user@host:port/database or duckdb:///path/to/file.duckdb."


class DatabaseLocked(EngineError, sqlstate="MM402"):
    """Another process has the DuckDB file open."""

    default_hint = "Close the other process; one process at a time owns a DuckDB file."


class ExtensionMissing(EngineError, sqlstate="MM403"):
    """The server has no plpython3u."""

    default_hint = (
        "Install the package postgresql-plpython3-<major> on the server, "
        "then run `mmdb install` again."
    )


class NotInstalled(EngineError, sqlstate="MM404"):
    """mmdb is not installed in this database, or its schema is behind."""

    default_hint = "Run `mmdb install URL`."


class MigrationMismatch(EngineError, sqlstate="MM405"):
    """A migration differs from the one that was applied, or is unknown here."""

    default_hint = "Install the mmdb version that wrote this schema, or a newer one."


class UntranslatableSql(EngineError, sqlstate="MM406"):
    """A statement of sql/ has no faithful form in this engine."""


class RightsMissing(EngineError, sqlstate="MM407"):
    """The role may not do this."""

    default_hint = (
        "What is mmdb's own comes with a role: GRANT mmdb_trainer TO whoever trains, and "
        "docs/roles.md says what else there is; a right on anything else is its owner's to GRANT."
    )


class LimitReached(EngineError, sqlstate="MM414"):
    """The role has as many workers, bytes, seconds or predicted rows as its limits allow."""

    default_hint = "The owner sets the limits, in mmdb.role_limit: docs/roles.md."


class ServerMissing(EngineError, sqlstate="MM417"):
    """There are no programs of a PostgreSQL server that fit."""

    default_hint = (
        "Install one, such as Debian's postgresql-plpython3-15, or name its pg_config in the "
        "environment variable PG_CONFIG."
    )


class ServerNotStarted(EngineError, sqlstate="MM418"):
    """A server of the user's own was not started, or not stopped."""


class SessionNeeded(EngineError, sqlstate="MM419"):
    """The call needs a session of its own, and the URL leads to a connection pooler."""

    default_hint = (
        "Name the server's own address in the URL. If the pooler lends a session for as long as a "
        "connection lasts, set the environment variable MMDB_POOLER to session."
    )


class NodeLost(EngineError, sqlstate="MM415"):
    """A node of the cluster does not answer; the session with its coordinator goes on."""

    default_hint = "SELECT * FROM mmdb.node_status; what needs the node goes on when it is back."


class DatabaseFailed(EngineError, sqlstate="MM408"):
    """The database raised an error of its own."""


class WriteConflict(DatabaseFailed, sqlstate="MM413"):
    """Another session wrote the same at the same time."""

    default_hint = "Try again."


class LockHeld(EngineError, sqlstate="MM416"):
    """Another session has held a lock for longer than this one waits."""

    default_hint = (
        "Call again, and while it waits see in another session who holds it: SELECT pid, "
        "pg_blocking_pids(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'; it ends with "
        "that session's transaction, or by pg_terminate_backend(pid). Set lock_timeout to wait on."
    )


class ConnectionLost(EngineError, sqlstate="MM409"):
    """The connection to the database broke."""

    default_hint = (
        "Look at the server's log, connect again and repeat the call; committed hops are kept."
    )


class ServerCrashed(ConnectionLost, sqlstate="MM411"):
    """The server ended this session because another one crashed."""


class EnvironmentChanged(EngineError, sqlstate="MM412"):
    """This worker's device, torch, CPU capability or thread count would give other bits."""

    default_hint = (
        "Go on where the run was begun, or create runs with options.environment 'any', "
        "which record the environment of each hop and promise no equal bits."
    )


class DeviceMissing(EngineError, sqlstate="MM420"):
    """There is no such device here."""

    default_hint = "Start the worker with --device cpu, or where torch sees that GPU."


class SinkFailed(EngineError, sqlstate="MM430"):
    """The service that was sent events or runs did not take them."""

    default_hint = "See that it runs at this address and takes requests, then export again."


class SinkRefused(SinkFailed, sqlstate="MM431"):
    """The service that was sent events or runs answered that it will not take them."""

    default_hint = "The answer says why; see that the address is that of the service."
    status = 0  # of the answer
    code = ""  # of the answer's `error_code`; empty without one


class Cancelled(EngineError, sqlstate="MM410"):
    """The statement was cancelled, or ran past its timeout."""


def _tree(root: type[MmdbError]) -> dict[str, type[MmdbError]]:
    found = {root.sqlstate: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


def from_sqlstate(sqlstate: str, message: str, hint: str = "") -> MmdbError | None:
    """Return the error that a server raised with `sqlstate`, or None if it is not of mmdb."""
    kind = _tree(MmdbError).get(sqlstate)
    return kind(message, hint=hint) if kind else None


#: Cancelled, a timeout, shut down: of PostgreSQL. Lost, crashed, cancelled: of mmdb.
_STOPPED = {"57014", "57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04"}
_STOPPED |= {"MM409", "MM410", "MM411"}


def stops_the_caller(error: BaseException) -> bool:
    """Return whether an error is for whoever called, too: a Ctrl-C, a cancel, a lost connection.

    What catches more than it knows asks this first and raises it again; a test holds that over the
    source. In PL/Python a cancel, a timeout or a shutdown is an Exception that any query may raise.

    Python turns SIGINT into KeyboardInterrupt in the main thread alone, and only where its own
    handler stands. Anything else that is no Exception, such as sys.exit(), is the code's own.
    """
    if isinstance(error, KeyboardInterrupt):
        in_main = threading.current_thread() is threading.main_thread()
        return in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    state = getattr(error, "sqlstate", None) or ""
    return isinstance(state, str) and (state in _STOPPED or state.startswith("08"))


class MmdbWarning(UserWarning):
    """mmdb did what was asked, and something about it is worth knowing."""


class NothingLearned(MmdbWarning):
    """A run's best candidate is no better than a guess, or than a linear model."""


class EnvironmentDiffers(MmdbWarning):
    """A recipe is followed in another environment than the one it was written in."""
