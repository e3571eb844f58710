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

    def __str__(self) -> str:
        return f"{self.message}\nHINT: {self.hint}" if self.hint else self.message


class InputError(MmdbError):
    """The call cannot be carried out as it was written."""

    sqlstate = "MM100"


# -- the dataset's query ------------------------------------------------------


class QueryError(InputError):
    """The dataset's query cannot be used."""

    sqlstate = "MM110"
    default_hint = "Pass exactly one SELECT over your tables."


class NotOneStatement(QueryError):
    """The query holds more than one statement, or none."""

    sqlstate = "MM111"


class NotASelect(QueryError):
    """The query is not a SELECT."""

    sqlstate = "MM112"
    default_hint = "A query is read, never written to: pass a SELECT that changes nothing."


class QueryFailed(QueryError):
    """The database refused the dataset's query."""

    sqlstate = "MM113"
    default_hint = "Run the query by itself; it must succeed there first."


class UnknownTable(QueryError):
    """The query names a table that does not exist."""

    sqlstate = "MM114"
    default_hint = "Check the table's name and schema, and that you may SELECT from it."


class UnknownColumn(QueryError):
    """The query, or the label, names a column that does not exist."""

    sqlstate = "MM115"
    default_hint = "Check the spelling, and which table of the query has the column."


# -- the rows -----------------------------------------------------------------


class DataError(InputError):
    """The rows of the query cannot be trained on."""

    sqlstate = "MM120"


class NullValues(DataError):
    """The query returned NULLs."""

    sqlstate = "MM121"
    default_hint = "Filter them out with WHERE ... IS NOT NULL, or fill them with COALESCE."


class RaggedArray(DataError):
    """The arrays or byte strings of a column differ in length."""

    sqlstate = "MM122"
    default_hint = "Every row of a tensor column must have the same number of elements."


class OneClass(DataError):
    """The label has a single class."""

    sqlstate = "MM123"
    default_hint = "A classifier needs at least two classes; check the query's WHERE clause."


class TooFewRows(DataError):
    """There are more partitions than rows."""

    sqlstate = "MM124"
    default_hint = "Ask for fewer partitions, or a smaller validation share."


class UnsupportedType(DataError):
    """A column has a type that mmdb cannot turn into numbers."""

    sqlstate = "MM125"
    default_hint = "Cast it in the query, for example extract(epoch FROM ts) or (flag)::int."


class NotFinite(DataError):
    """The query returned NaN, infinite or out-of-range numbers."""

    sqlstate = "MM126"
    default_hint = "Filter or clamp them in the query; float32 holds up to 3.4e38."


class TooManyCategories(DataError):
    """A column has too many distinct values for one-hot inputs, or for classes."""

    sqlstate = "MM127"
    default_hint = "Leave the column out of the query, or group rare values with CASE."


# -- architectures ------------------------------------------------------------


class ArchitectureError(InputError):
    """The architecture cannot be built."""

    sqlstate = "MM130"


class UnknownFactory(ArchitectureError):
    """No factory of that name is registered."""

    sqlstate = "MM131"
    default_hint = (
        "SELECT name FROM mmdb.factory shows what is registered; "
        "the owner adds more with register_factory."
    )


class FactoryNotAllowed(ArchitectureError):
    """Only the owner may register a factory."""

    sqlstate = "MM132"
    default_hint = "Ask the owner of schema mmdb to call mmdb.register_factory(name, target)."


class FactoryFailed(ArchitectureError):
    """The factory raised, or did not return a torch.nn.Module."""

    sqlstate = "MM133"
    default_hint = "Call the factory by hand with the same arguments."


class CutNotFound(ArchitectureError):
    """The network has no module of that path, or it does not run."""

    sqlstate = "MM136"
    default_hint = "freeze_up_to is the path of a module, such as 'layer3'."


class NotACut(ArchitectureError):
    """Later layers read more of the network than the output of the module at the cut."""

    sqlstate = "MM137"
    default_hint = "Freeze up to a module that everything after it depends on."


class HeadMismatch(ArchitectureError):
    """The head does not fit the features, or the labels."""

    sqlstate = "MM138"
    default_hint = "A head takes the pooled features of a batch and returns one output per class."


class BackboneMismatch(ArchitectureError):
    """The model that is to be frozen lacks a tensor, or a column, of the layers before the cut."""

    sqlstate = "MM139"
    default_hint = "warm_start names a model of the same architecture."


class OutputMismatch(ArchitectureError):
    """The model's output does not fit the dataset's labels."""

    sqlstate = "MM134"
    default_hint = "The last layer must have one output per class, or one for a regression."


class InvalidLayerGraph(ArchitectureError):
    """The layer graph is not well formed."""

    sqlstate = "MM135"
    default_hint = "docs/architectures.md shows the format and the allowed layers."


# -- runs ---------------------------------------------------------------------


class SearchError(InputError):
    """The search or the run's options cannot be used."""

    sqlstate = "MM140"


class EmptySearch(SearchError):
    """The search space holds no candidate."""

    sqlstate = "MM141"
    default_hint = "Give every dimension at least one value."


class InvalidHyperparameter(SearchError):
    """A hyper-parameter has the wrong name, type or range."""

    sqlstate = "MM142"
    default_hint = "docs/candidates.md lists every hyper-parameter with its type."


class InvalidOption(SearchError):
    """An option has an unknown name or a wrong value."""

    sqlstate = "MM143"


# -- names --------------------------------------------------------------------


class NotFound(InputError):
    """There is nothing of that name or id."""

    sqlstate = "MM150"


class DatasetNotFound(NotFound):
    """There is no such dataset."""

    sqlstate = "MM151"
    default_hint = "SELECT name FROM mmdb.dataset_overview lists the datasets."


class DatasetDropped(NotFound):
    """The run's dataset has been dropped."""

    sqlstate = "MM152"
    default_hint = "Create the dataset again; what is to be trained on it needs a new run."


class RunNotFound(NotFound):
    """There is no such run."""

    sqlstate = "MM153"
    default_hint = "SELECT run FROM mmdb.run_progress lists the runs."


class CandidateNotFound(NotFound):
    """There is no such candidate."""

    sqlstate = "MM154"
    default_hint = "SELECT candidate_id FROM mmdb.leaderboard lists the candidates."


class PartitionNotFound(NotFound):
    """There is no such partition, or it is not of this run's dataset."""

    sqlstate = "MM155"
    default_hint = "SELECT part_id FROM mmdb.partition_overview lists the partitions."


class ModelNotFound(NotFound):
    """There is no such model."""

    sqlstate = "MM156"
    default_hint = "SELECT model, version FROM mmdb.model_overview lists the models."


class AliasNotFound(NotFound):
    """There is no such alias."""

    sqlstate = "MM157"
    default_hint = "SELECT model, alias, version FROM mmdb.model_alias lists the aliases."


class FunctionNotFound(NotFound):
    """No function of that name and kind is registered."""

    sqlstate = "MM158"
    default_hint = (
        "Ask the owner of schema mmdb to call mmdb.register_function(name, target, kind)."
    )


class EntityNotFound(NotFound):
    """Lineage knows nothing of that name."""

    sqlstate = "MM159"
    default_hint = (
        "Name it as model:NAME@VERSION, run:NAME, dataset:NAME or column:SCHEMA.TABLE.COLUMN."
    )


class AlreadyExists(InputError):
    """The name is taken."""

    sqlstate = "MM160"
    default_hint = "Choose another name, or drop the old one first."


class InvalidName(InputError):
    """The name is empty, too long or holds a character that is not allowed."""

    sqlstate = "MM161"
    default_hint = "Use 1 to 200 letters, digits, '_', '-', '.' and '/'."


class ScheduleNotFound(NotFound):
    """There is no such schedule, or it is another role's."""

    sqlstate = "MM163"
    default_hint = "SELECT schedule, owner FROM mmdb.schedule_overview lists the schedules."


class ScoringNotFound(NotFound):
    """No model fills that column of new rows."""

    sqlstate = "MM164"
    default_hint = "SELECT table_name, column_name FROM mmdb.scoring_overview lists the columns."


class AmbiguousEntity(InputError):
    """The name is that of several things."""

    sqlstate = "MM162"
    default_hint = "Say which one is meant by its kind, such as dataset:NAME."


class InvalidInput(InputError):
    """The value does not fit the model's input."""

    sqlstate = "MM170"
    default_hint = "Pass one number per feature, or a JSON row with the dataset's columns."


class DatasetInUse(InputError):
    """A run or a model still needs the dataset."""

    sqlstate = "MM171"
    default_hint = "Pass force => true to drop it all the same."


class ModelInUse(InputError):
    """An alias or another model still needs the model."""

    sqlstate = "MM172"


class FunctionFailed(InputError):
    """A registered function cannot be used, raised, or returned something else than it should."""

    sqlstate = "MM173"
    default_hint = "Call the function by hand with the same arguments."


class TargetMismatch(InputError):
    """Predictions cannot be written to the table."""

    sqlstate = "MM174"
    default_hint = "Name a table that does not exist yet; it is then made as predictions need it."


class ReadOnly(InputError):
    """A session or class that only reads was asked to write."""

    sqlstate = "MM175"


class OutOfMemory(InputError):
    """The call takes more memory than it may."""

    sqlstate = "MM176"
    default_hint = (
        "Ask for less at a time: a smaller model, batch, row or argument. What a call may take is "
        "the owner's to say, by memory_bytes of mmdb.setting and of mmdb.role_limit, and what the "
        "machine has free."
    )


class DeviceFull(OutOfMemory):
    """The device's memory does not hold what was asked of it."""

    sqlstate = "MM177"
    default_hint = (
        "Use a smaller model or batch_size (accumulate keeps the rows of a step), amp, or workers "
        "on a device with more memory. MMDB_DEVICE_BYTES says what partitions may take of it."
    )


# -- files to import and to write ---------------------------------------------


class FileError(InputError):
    """A file or folder cannot be imported or written."""

    sqlstate = "MM180"


class FileNotRead(FileError):
    """A file is missing, or may not be read."""

    sqlstate = "MM181"
    default_hint = "Check the path and that this user may read it."


class FileDamaged(FileError):
    """A file is cut short, damaged, or not of the format that it says."""

    sqlstate = "MM182"
    default_hint = "Fetch or write the file again, and compare its size with the original's."


class UnsafeFile(FileError):
    """A file carries code, or names files outside of its folder."""

    sqlstate = "MM183"
    default_hint = (
        "Where you trust its source, load it with the program that wrote it and save its "
        "state_dict() with torch.save or safetensors; import that."
    )


class UnsupportedContent(FileError):
    """A file holds something that is no dense tensor, or the format has no such dtype."""

    sqlstate = "MM184"


class FileExists(FileError):
    """There is a file or folder of that name already."""

    sqlstate = "MM185"
    default_hint = "Choose another target, or pass overwrite=True (--overwrite)."


class FileNotWritten(FileError):
    """The system did not let a file be written."""

    sqlstate = "MM186"
    default_hint = "Check the folder, its rights and the free space of its disk."


class ImportMismatch(FileError):
    """The imported tensors are not those that were exported."""

    sqlstate = "MM187"
    default_hint = "The file was changed after it was written; export the model again."


# -- hops ---------------------------------------------------------------------


class HopError(MmdbError):
    """The hop could not be done."""

    sqlstate = "MM200"


class OutOfTurn(HopError):
    """It is not this hop's turn."""

    sqlstate = "MM201"
    default_hint = "Pass epoch => NULL and the partition that the hint of the message names."


class CandidateStopped(HopError):
    """The candidate has failed or was stopped."""

    sqlstate = "MM202"
    default_hint = "SELECT * FROM mmdb.leaderboard shows its error."


class CandidateBusy(HopError):
    """Another session is training this candidate now."""

    sqlstate = "MM203"
    default_hint = "Wait for that hop to end."


class NotANumber(HopError):
    """The loss became NaN or infinite."""

    sqlstate = "MM204"
    default_hint = "Lower the learning rate, or clip gradients."


class TrainingFailed(HopError):
    """The model raised while it was trained."""

    sqlstate = "MM205"
    trace: str = ""  # the end of the traceback, at most 16 KB


class ReplayMismatch(HopError):
    """A replayed hop gave other bits than the hop that is stored."""

    sqlstate = "MM206"
    default_hint = (
        "The hop ran with another device, torch, CPU capability or thread count: go on there, or "
        "save the model there as a snapshot. Runs with options.checkpoint 'hop' replay nothing."
    )


class StateNotFound(HopError):
    """The candidate's state is not where the last hop left it."""

    sqlstate = "MM207"


class StateCorrupt(HopError):
    """A stored state's bytes do not match its hash."""

    sqlstate = "MM213"
    default_hint = "Delete the damaged rows of mmdb.checkpoint_chunk; the hops are then replayed."


class BlockCorrupt(HopError):
    """A block's bytes do not match its stored hash."""

    sqlstate = "MM208"
    default_hint = "Create the dataset again; its stored rows were damaged."


class WorkerLost(HopError):
    """The worker's session ended in the middle of a hop."""

    sqlstate = "MM210"


class WorkerDragged(WorkerLost):
    """The worker's session ended because another session of the server crashed."""

    sqlstate = "MM212"


class HopTimedOut(HopError):
    """The hop took longer than the run allows."""

    sqlstate = "MM214"
    default_hint = "Create the run with a longer options.hop_limit_s, or a smaller model."


class PartitionEvicted(HopError):
    """A partition left the node's cache before it was mapped."""

    sqlstate = "MM211"
    default_hint = "Give the cache more room with MMDB_CACHE_BYTES in the server's environment."


class PartitionUnreachable(HopError):
    """A partition lies on a node alone where no worker is up."""

    sqlstate = "MM215"
    default_hint = "Start a worker on that node, then train the run again: it goes on."


class BackboneMissing(HopError):
    """The model whose layers are frozen was dropped, and features of it are missing."""

    sqlstate = "MM217"
    default_hint = "Import or save the model again, and create the run with it."


class FeatureCorrupt(HopError):
    """Stored features do not match their digest."""

    sqlstate = "MM218"
    default_hint = "SELECT mmdb.drop_features(dataset): they are computed again."


class RanOnCoordinator(HopError):
    """A hop on Citus was not handed to the node of its partition."""

    sqlstate = "MM216"
    default_hint = (
        "Call SELECT * FROM mmdb.train_hop(...) alone: outside BEGIN, without WHERE, JOIN or WITH, "
        "each argument a constant or a parameter."
    )


class PrecisionMissing(HopError):
    """The worker's device does not compute in the candidate's precision."""

    sqlstate = "MM220"
    default_hint = "Leave amp out, choose the other precision, or use workers on another device."


class GroupBroken(HopError):
    """Another worker of the group was lost, or did not answer in time."""

    sqlstate = "MM221"
    default_hint = "The round is run again; where it breaks each time, look at the other worker."


class StatesDiffer(HopError):
    """States that must be of one candidate, or equal, are not."""

    sqlstate = "MM222"


# -- runs under way -----------------------------------------------------------


class RunError(MmdbError):
    """The run cannot go on."""

    sqlstate = "MM300"


class RunBusy(RunError):
    """The run is being trained by another driver."""

    sqlstate = "MM301"
    default_hint = "SELECT * FROM mmdb.run_progress shows how far it is."


class RunFailed(RunError):
    """Every candidate of the run has failed."""

    sqlstate = "MM302"
    default_hint = "SELECT candidate_id, error FROM mmdb.leaderboard shows why."


class InTransaction(RunError):
    """`train` cannot run inside a transaction block."""

    sqlstate = "MM303"
    default_hint = "Run CALL mmdb.train(...) by itself, outside BEGIN ... COMMIT."


class NoWorkerLogin(RunError):
    """The server has no login with which to open its worker sessions."""

    sqlstate = "MM304"
    default_hint = (
        "Train from outside with `mmdb train RUN --database URL`, let `mmdb worker URL` serve the "
        "database, or let the owner set mmdb.setting 'worker_dsn': docs/running.md."
    )


class RunEnded(RunError):
    """The run has ended: there is nothing left to train or to cancel."""

    sqlstate = "MM305"
    default_hint = "SELECT * FROM mmdb.leaderboard shows what came of it."


class NoWorkers(RunError):
    """The database has no worker processes."""

    sqlstate = "MM306"
    default_hint = "Train it by `mmdb train RUN`, or start `mmdb worker URL` on PostgreSQL."


class WorkerExists(RunError):
    """A worker process of that name serves already."""

    sqlstate = "MM307"
    default_hint = "Choose another --name, or stop the other process first."


class NoServerFunctions(RunError):
    """This database has no functions: its server has no PL/Python."""

    sqlstate = "MM308"
    default_hint = "Call it from Python by mmdb.connect(url), or start workers with --mode client."


# -- the model store ----------------------------------------------------------


class StoreError(MmdbError):
    """A model or a tensor cannot be kept or made again."""

    sqlstate = "MM500"


class UnsupportedTensor(StoreError):
    """A state dict holds a value without plain bytes."""

    sqlstate = "MM501"
    default_hint = "Pass dense tensors; keep a quantized one as its integers and scales."


class TensorNotFound(StoreError):
    """The model has no tensor of that path, or fewer rows."""

    sqlstate = "MM502"
    default_hint = "SELECT path, shape FROM mmdb.tensor_storage lists a model's tensors."


class CorruptTensor(StoreError):
    """Stored bytes are not the ones that were saved."""

    sqlstate = "MM503"
    default_hint = "Restore the database's backup, or save the model again from another copy."


class DefinitionMissing(StoreError):
    """The database does not know how to build the model's module."""

    sqlstate = "MM504"
    default_hint = "Pass a module of the same architecture: db.recover(model, into=module)."


class ModuleMismatch(StoreError):
    """The module's tensors are not those of the model."""

    sqlstate = "MM505"


class NoParent(StoreError):
    """An update needs a parent with the same tensors."""

    sqlstate = "MM506"
    default_hint = 'Pass parent="name@version", or approach="snapshot".'


class RecipeError(StoreError):
    """A model's recipe cannot be kept or followed."""

    sqlstate = "MM510"


class InvalidRecipe(RecipeError):
    """The recipe holds what cannot be kept, or lacks what it takes to follow it."""

    sqlstate = "MM511"
    default_hint = "Arguments and states are numbers, texts, lists, dictionaries and tensors."


class UnknownTrainer(RecipeError):
    """No trainer of that name is registered."""

    sqlstate = "MM512"
    default_hint = "The owner registers it: register_trainer(name, 'package.module:callable')."


class TrainerFailed(RecipeError):
    """The trainer cannot be imported, or raised."""

    sqlstate = "MM513"
    default_hint = "Call it by hand with the same module, data and arguments."


class NotReplayable(RecipeError):
    """The recipe of a model needs something that is no longer there."""

    sqlstate = "MM514"


class RecipeMismatch(RecipeError):
    """Following the recipe gave other weights than the model's."""

    sqlstate = "MM515"
    default_hint = (
        "Follow it where it was written, with the same torch, threads and processor; "
        "a trainer that is not deterministic can only be saved by its weights."
    )


# -- engines ------------------------------------------------------------------


class EngineError(MmdbError):
    """The database is not set up for mmdb."""

    sqlstate = "MM400"


class WrongUrl(EngineError):
    """The database URL is not understood, or nothing answers there."""

    sqlstate = "MM401"
    default_hint = "Use postgresql://user@host:port/database or duckdb:///path/to/file.duckdb."


class DatabaseLocked(EngineError):
    """Another process has the DuckDB file open."""

    sqlstate = "MM402"
    default_hint = "Close the other process; one process at a time owns a DuckDB file."


class ExtensionMissing(EngineError):
    """The server has no plpython3u."""

    sqlstate = "MM403"
    default_hint = (
        "Install the package postgresql-plpython3-<major> on the server, "
        "then run `mmdb install` again."
    )


class NotInstalled(EngineError):
    """mmdb is not installed in this database, or its schema is behind."""

    sqlstate = "MM404"
    default_hint = "Run `mmdb install URL`."


class MigrationMismatch(EngineError):
    """A migration differs from the one that was applied, or is unknown here."""

    sqlstate = "MM405"
    default_hint = "Install the mmdb version that wrote this schema, or a newer one."


class UntranslatableSql(EngineError):
    """A statement of sql/ has no faithful form in this engine."""

    sqlstate = "MM406"


class RightsMissing(EngineError):
    """The role may not do this."""

    sqlstate = "MM407"
    default_hint = (
        "What is mmdb's own comes with a role: GRANT mmdb_trainer TO whoever trains, and "
        "docs/roles.md says what else there is; a right on anything else is its owner's to GRANT."
    )


class LimitReached(EngineError):
    """The role has as many workers, bytes, seconds or predicted rows as its limits allow."""

    sqlstate = "MM414"
    default_hint = "The owner sets the limits, in mmdb.role_limit: docs/roles.md."


class ServerMissing(EngineError):
    """There are no programs of a PostgreSQL server that fit."""

    sqlstate = "MM417"
    default_hint = (
        "Install one, such as Debian's postgresql-plpython3-15, or name its pg_config in the "
        "environment variable PG_CONFIG."
    )


class ServerNotStarted(EngineError):
    """A server of the user's own was not started, or not stopped."""

    sqlstate = "MM418"


class SessionNeeded(EngineError):
    """The call needs a session of its own, and the URL leads to a connection pooler."""

    sqlstate = "MM419"
    default_hint = (
        "Name the server's own address in the URL. If the pooler lends a session for as long as a "
        "connection lasts, set the environment variable MMDB_POOLER to session."
    )


class NodeLost(EngineError):
    """A node of the cluster does not answer; the session with its coordinator goes on."""

    sqlstate = "MM415"
    default_hint = "SELECT * FROM mmdb.node_status; what needs the node goes on when it is back."


class DatabaseFailed(EngineError):
    """The database raised an error of its own."""

    sqlstate = "MM408"


class WriteConflict(DatabaseFailed):
    """Another session wrote the same at the same time."""

    sqlstate = "MM413"
    default_hint = "Try again."


class LockHeld(EngineError):
    """Another session has held a lock for longer than this one waits."""

    sqlstate = "MM416"
    default_hint = (
        "Call again, and while it waits see in another session who holds it: SELECT pid, "
        "pg_blocking_pids(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'; it ends with "
        "that session's transaction, or by pg_terminate_backend(pid). Set lock_timeout to wait on."
    )


class ConnectionLost(EngineError):
    """The connection to the database broke."""

    sqlstate = "MM409"
    default_hint = (
        "Look at the server's log, connect again and repeat the call; committed hops are kept."
    )


class ServerCrashed(ConnectionLost):
    """The server ended this session because another one crashed."""

    sqlstate = "MM411"


class EnvironmentChanged(EngineError):
    """This worker's device, torch, CPU capability or thread count would give other bits."""

    sqlstate = "MM412"
    default_hint = (
        "Go on where the run was begun, or create runs with options.environment 'any', "
        "which record the environment of each hop and promise no equal bits."
    )


class DeviceMissing(EngineError):
    """There is no such device here."""

    sqlstate = "MM420"
    default_hint = "Start the worker with --device cpu, or where torch sees that GPU."


class SinkFailed(EngineError):
    """The service that was sent events or runs did not take them."""

    sqlstate = "MM430"
    default_hint = "See that it runs at this address and takes requests, then export again."


class SinkRefused(SinkFailed):
    """The service that was sent events or runs answered that it will not take them."""

    sqlstate = "MM431"
    default_hint = "The answer says why; see that the address is that of the service."
    status = 0  # of the answer
    code = ""  # of the answer's `error_code`; empty without one


class Cancelled(EngineError):
    """The statement was cancelled, or ran past its timeout."""

    sqlstate = "MM410"


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
