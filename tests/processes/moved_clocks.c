/* Moves the clocks of one process. Preload it (LD_PRELOAD) and name a file in MOVED_CLOCKS: three numbers of
 * 64 bits, the nanoseconds to add to CLOCK_REALTIME, CLOCK_MONOTONIC and CLOCK_BOOTTIME. The file is mapped, so
 * whoever writes it moves the clocks of the running process.
 *
 * Functions that wait until a point in time get that point translated back to the kernel's clock. A wait that has
 * begun is not shortened or extended when a clock moves. Waits for a duration are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000L

enum { REAL, MONOTONIC, BOOT, CLOCKS };

static const volatile int64_t none[CLOCKS];
static const volatile int64_t *moved = none;
static int ready;

static int (*the_clock_gettime)(clockid_t, struct timespec *);
static int (*the_clock_nanosleep)(clockid_t, int, const struct timespec *, struct timespec *);
static int (*the_sem_timedwait)(sem_t *, const struct timespec *);
static int (*the_sem_clockwait)(sem_t *, clockid_t, const struct timespec *);
static int (*the_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*the_cond_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
static int (*the_mutex_timedlock)(pthread_mutex_t *, const struct timespec *);
static int (*the_mutex_clocklock)(pthread_mutex_t *, clockid_t, const struct timespec *);
static long (*the_syscall)(long, ...);

static void *find(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
    if (ready) return;
    the_clock_gettime = find("clock_gettime");
    the_clock_nanosleep = find("clock_nanosleep");
    the_sem_timedwait = find("sem_timedwait");
    the_sem_clockwait = find("sem_clockwait");
    /* x86-64 has an older pthread_cond_timedwait under the same name, with another layout. */
    the_cond_timedwait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!the_cond_timedwait) the_cond_timedwait = find("pthread_cond_timedwait");
    the_cond_clockwait = find("pthread_cond_clockwait");
    the_mutex_timedlock = find("pthread_mutex_timedlock");
    the_mutex_clocklock = find("pthread_mutex_clocklock");
    the_syscall = find("syscall");
    const char *path = getenv("MOVED_CLOCKS");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED) moved = mapped;
        close(file);
    }
    ready = 1;
}

static int64_t offset(clockid_t clock) {
    switch (clock) {
        case CLOCK_REALTIME:
        case CLOCK_REALTIME_COARSE:
        case CLOCK_REALTIME_ALARM:
        case CLOCK_TAI:
            return moved[REAL];
        case CLOCK_MONOTONIC:
        case CLOCK_MONOTONIC_RAW:
        case CLOCK_MONOTONIC_COARSE:
            return moved[MONOTONIC];
        case CLOCK_BOOTTIME:
        case CLOCK_BOOTTIME_ALARM:
            return moved[BOOT];
        default: /* those that measure a process or a thread */
            return 0;
    }
}

static struct timespec plus(struct timespec when, int64_t by) {
    int64_t nanos = when.tv_nsec + by % SECOND;
    when.tv_sec += by / SECOND;
    if (nanos < 0) {
        nanos += SECOND;
        when.tv_sec -= 1;
    } else if (nanos >= SECOND) {
        nanos -= SECOND;
        when.tv_sec += 1;
    }
    when.tv_nsec = nanos;
    return when;
}

/* What the kernel's clock shows when the moved one shows `when`. A time before its start is one that has passed. */
static const struct timespec *back(clockid_t clock, const struct timespec *when, struct timespec *room) {
    if (!when || when->tv_nsec < 0 || when->tv_nsec >= SECOND) return when; /* the callee refuses it */
    *room = plus(*when, -offset(clock));
    if (room->tv_sec < 0) *room = (struct timespec){0, 0};
    return room;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    begin();
    int failed = the_clock_gettime(clock, now);
    if (!failed) *now = plus(*now, offset(clock));
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    if (!failed) *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
    return failed;
}

time_t time(time_t *seconds) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
    return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, now) ? base : 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    struct timespec room;
    begin();
    return the_clock_nanosleep(clock, flags, flags & TIMER_ABSTIME ? back(clock, until, &room) : until, left);
}

int sem_timedwait(sem_t *one, const struct timespec *until) {
    struct timespec room;
    begin();
    return the_sem_timedwait(one, back(CLOCK_REALTIME, until, &room));
}

int sem_clockwait(sem_t *one, clockid_t clock, const struct timespec *until) {
    struct timespec room;
    begin();
    return the_sem_clockwait(one, clock, back(clock, until, &room));
}

int pthread_cond_timedwait(pthread_cond_t *one, pthread_mutex_t *mutex, const struct timespec *until) {
    struct timespec room;
    begin();
    /* Bit 1 of glibc's field says which clock the attributes named. */
    clockid_t clock = one->__data.__wrefs & 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
    return the_cond_timedwait(one, mutex, back(clock, until, &room));
}

int pthread_cond_clockwait(pthread_cond_t *one, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until) {
    struct timespec room;
    begin();
    return the_cond_clockwait(one, mutex, clock, back(clock, until, &room));
}

int pthread_mutex_timedlock(pthread_mutex_t *one, const struct timespec *until) {
    struct timespec room;
    begin();
    return the_mutex_timedlock(one, back(CLOCK_REALTIME, until, &room));
}

int pthread_mutex_clocklock(pthread_mutex_t *one, clockid_t clock, const struct timespec *until) {
    struct timespec room;
    begin();
    return the_mutex_clocklock(one, clock, back(clock, until, &room));
}

/* gRPC waits by the futex itself, until a point in time. */
long syscall(long number, ...) {
    long a[6];
    struct timespec room;
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(rest, long);
    va_end(rest);
    begin();
    if (number == SYS_clock_gettime) return clock_gettime((clockid_t)a[0], (struct timespec *)a[1]);
    if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET) {
        clockid_t clock = a[1] & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        a[3] = (long)back(clock, (const struct timespec *)a[3], &room);
    }
    return the_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
