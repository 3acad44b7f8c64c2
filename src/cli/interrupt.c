/* Signals that ask for an end. The handler stores a number and nothing else; the
 * run loop looks at it between jobs and leaves a state that can be resumed.
 * Invariant: a second signal of the same kind always ends the process. */
#include "cli/interrupt.h"

#include <signal.h>
#include <stddef.h>

static atomic_int received;

static void handle(int number)
{
    atomic_store(&received, number);
}

atomic_int *tp_interrupt_install(void)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    struct sigaction action = {.sa_handler = handle, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    struct sigaction old;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (!sigaction(numbers[i], NULL, &old) && old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    return &received;
}
