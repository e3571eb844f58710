/* Loads torch into the server itself, so that its sessions, which are forked from it, have it.

   PL/Python starts Python in each session; where it runs already, it goes on with it. That holds up
   to Python 3.11: a later one ends a session that names its module plpy a second time. */

#include "postgres.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "fmgr.h"
#include "libpq/auth.h"
#include "miscadmin.h"

PG_MODULE_MAGIC;

void _PG_init(void);

typedef void *(*new_module)(void);

static void (*after_fork)(void);

/* A session ends without the destructors of torch, which take 0.15 s to copy its memory and free it. */
static void
end_at_once(int status, void *unused)
{
    _exit(status);
}

static void
begin_session(Port *port, int status)
{
    after_fork();
    on_exit(end_at_once, NULL);
}

void
_PG_init(void)
{
    void *plpython;
    new_module plpy = (new_module) load_external_function("$libdir/plpython3", "PyInit_plpy", true, &plpython);
    int (*append)(const char *, new_module) = dlsym(plpython, "PyImport_AppendInittab");
    void (*initialize)(int) = dlsym(plpython, "Py_InitializeEx");
    int (*run)(const char *) = dlsym(plpython, "PyRun_SimpleString");

    append("plpy", plpy);
    initialize(0);
    setenv("OPENBLAS_NUM_THREADS", "1", 1); /* no thread outlives a fork */
    if (run("import gc, numpy, sqlglot.dialects.duckdb, torch; gc.freeze()"))
        ereport(FATAL, (errmsg("torch could not be loaded")));
    unsetenv("OPENBLAS_NUM_THREADS");
    after_fork = (void (*)(void)) dlsym(plpython, "PyOS_AfterFork_Child");
    ClientAuthentication_hook = begin_session;
}
