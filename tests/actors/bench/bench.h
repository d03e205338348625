/* What is measured. */
#ifndef BENCH_H
#define BENCH_H

#define API __attribute__((visibility("default")))

/* One round of what `what` names; null for an unknown name. */
typedef void (*step_fn)(long round);
step_fn step_of(const char *what);

/*
 * Calls `what` RATE times a second, evenly, from each of so many processes together, for so many seconds. Prints how many calls
 * there were and how long they took: a machine may not keep up.
 */
int storm(const char *what, double rate, double seconds, int processes);

#endif
