/* SIGINT and SIGTERM: the first asks the run to stop, the second ends the process. */
#ifndef TP_CLI_INTERRUPT_H
#define TP_CLI_INTERRUPT_H

#include <stdatomic.h>

/* Installs the handlers. The result is 0 until a signal came, then its number. A
 * signal that is ignored (nohup, a shell's background job) stays ignored. */
atomic_int *tp_interrupt_install(void);

#endif
