/*
 * clockshift is preloaded into a test server and moves its wall clock. The
 * offset, in microseconds, is the first int64 of the file named by
 * ROTA_TEST_CLOCK; the file is mapped, so a test can change it at any time.
 *
 * libfaketime is not used because it deadlocks in programs linked with
 * jemalloc (redis-server is one): it looks the real functions up with dlsym,
 * which allocates, and jemalloc reads the clock while it starts. Here the
 * kernel is asked directly and nothing is looked up.
 *
 * Monotonic clocks stay as they are: time passes at its usual pace.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void clockshift_init(void) {
	const char *path = getenv("ROTA_TEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *p = MAP_FAILED;
	if (fd >= 0) {
		p = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
		close(fd);
	}
	if (p == MAP_FAILED) {
		fputs("clockshift: ROTA_TEST_CLOCK names no readable file\n", stderr);
		_exit(1);
	}
	offset = p;
}

int clock_gettime(clockid_t clock, struct timespec *ts) {
	int rc = (int)syscall(SYS_clock_gettime, clock, ts);
	if (rc == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
		int64_t by = *offset;
		int64_t ns = ts->tv_nsec + by % 1000000 * 1000;
		ts->tv_sec += by / 1000000;
		if (ns < 0) {
			ns += 1000000000;
			ts->tv_sec--;
		} else if (ns >= 1000000000) {
			ns -= 1000000000;
			ts->tv_sec++;
		}
		ts->tv_nsec = ns;
	}
	return rc;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
	struct timespec ts;
	(void)tz;
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out) {
	struct timespec ts;
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return (time_t)-1;
	if (out)
		*out = ts.tv_sec;
	return ts.tv_sec;
}
