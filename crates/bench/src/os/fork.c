/* Forks N children that stay, and prints the nanoseconds of each fork: built static and dynamic, to see
 * what a process with few mappings costs beside one with the C library mapped. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

static volatile sig_atomic_t stop;
static void on_signal(int signal) { (void)signal; stop = 1; }

int main(int argc, char **argv) {
  int n = argc > 1 ? atoi(argv[1]) : 0, made = 0;
  double *took = malloc(sizeof *took * (n + 1));
  pid_t *pids = malloc(sizeof *pids * (n + 1));
  if (!took || !pids) return 1;
  signal(SIGINT, on_signal);
  signal(SIGTERM, on_signal);
  for (; made < n && !stop; made++) {
    took[made] = 0;
    double start = now();
    pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) pause();
    }
    took[made] = now() - start;
    if (pid < 0) {
      perror("fork");
      break;
    }
    pids[made] = pid;
  }
  for (int i = 0; i < made; i++) printf("%.0f\n", took[i]);
  for (int i = 0; i < made; i++) kill(pids[i], SIGKILL);
  for (int i = 0; i < made; i++) waitpid(pids[i], 0, 0);
  return 0;
}
