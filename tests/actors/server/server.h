/* What the files of this actor share. */
#pragma once
#include <stddef.h>

#define MIB ((size_t)1 << 20)

/* load.c: each gives what failed, 0 for nothing. */

/* Allocates and frees `total` times. */
int churn(int total);
/* Allocates `total` times, and keeps it all. */
int hold(int total);
/* As many threads, all of which allocate at once, and free at once when each has. */
int crowd(int total);
/* As many processes, started at once: each executes this program and allocates and frees the same. */
int family(int total);
/* Children that end at once, by another way than fork and exit. */
int spawned(int total), vforked(int total), orphaned(int total);
/* Executes this program while another thread is in an allocation. Returns when that fails. */
int exec_in_call(void);
/* A child with a process id of the caller's choice, which executes this program and reads `input`. Gives its id. */
int twin(int pid, int input);
