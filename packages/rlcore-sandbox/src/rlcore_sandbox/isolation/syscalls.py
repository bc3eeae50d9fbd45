"""System call numbers: `name x86-64 ARM64`, and `-` where the architecture does not have the call."""

from . import kernel


def _table(text: str) -> dict[str, int]:
    column = kernel.SUPPORTED_MACHINES.index(kernel.MACHINE) + 1 if kernel.MACHINE in kernel.SUPPORTED_MACHINES else 1
    rows = [entry.split() for entry in text.replace("\n", " ").split(",")]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


# Files and pipes: what they reach is limited by the view and by landlock.
FILES = _table("""
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69, pwritev 296 70,
preadv2 327 286, pwritev2 328 287, close 3 57, close_range 436 436, lseek 8 62, open 2 -, openat 257 56,
openat2 437 437, creat 85 -, stat 4 -, lstat 6 -, fstat 5 80, newfstatat 262 79, statx 332 291, access 21 -,
faccessat 269 48, faccessat2 439 439, readlink 89 -, readlinkat 267 78, getdents 78 -, getdents64 217 61,
getcwd 79 17, chdir 80 49, fchdir 81 50, mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -, unlinkat 263 35,
rename 82 -, renameat 264 38, renameat2 316 276, link 86 -, linkat 265 37, symlink 88 -, symlinkat 266 36,
truncate 76 45, ftruncate 77 46, fallocate 285 47, fsync 74 82, fdatasync 75 83, flock 73 32, dup 32 23,
dup2 33 -, dup3 292 24, pipe 22 -, pipe2 293 59, sendfile 40 71, copy_file_range 326 285, fadvise64 221 223,
readahead 187 213, umask 95 166, statfs 137 43, fstatfs 138 44
""")

# Memory, limited by RLIMIT_AS; see `CONDITIONAL` for `mmap`.
MEMORY = _table("""
munmap 11 215, mprotect 10 226, mremap 25 216, madvise 28 233, msync 26 227, mincore 27 232,
brk 12 214, mlock 149 228, munlock 150 229, membarrier 324 283
""")

# Waiting for files and clocks.
WAITING = _table("""
poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72, epoll_create 213 -, epoll_create1 291 20,
epoll_ctl 233 21, epoll_wait 232 -, epoll_pwait 281 22, epoll_pwait2 441 441, eventfd 284 -, eventfd2 290 19,
timerfd_create 283 85, timerfd_settime 286 86, timerfd_gettime 287 87, signalfd 282 -, signalfd4 289 74,
pause 34 -, nanosleep 35 101, clock_nanosleep 230 115, restart_syscall 219 128
""")

# Clocks and timers of the process itself. The timers end with a cell, which those of `timer_create` would not.
TIME = _table("""
getitimer 36 102, setitimer 38 103, alarm 37 -, clock_gettime 228 113, clock_getres 229 114, gettimeofday 96 169,
time 201 -, times 100 153
""")

# Handlers of signals.
SIGNALS = _table("""
rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigsuspend 130 133,
rt_sigtimedwait 128 137, sigaltstack 131 132
""")

# Properties of the process itself, and its end.
PROCESS = _table("""
getpid 39 172, getppid 110 173, gettid 186 178, getpgid 121 155, getpgrp 111 -, getsid 124 156, getuid 102 174,
geteuid 107 175, getgid 104 176, getegid 108 177, getresuid 118 148, getresgid 120 150, getgroups 115 158,
getpriority 140 141, getrlimit 97 163, setrlimit 160 164, getrusage 98 165, sysinfo 99 179, uname 63 160,
getcpu 309 168, getrandom 318 278, set_tid_address 218 96, set_robust_list 273 99, get_robust_list 274 100,
rseq 334 293, arch_prctl 158 -, futex 202 98, futex_waitv 449 449, sched_yield 24 124,
sched_getaffinity 204 123, sched_getparam 143 121, sched_getscheduler 145 120, sched_get_priority_max 146 125,
sched_get_priority_min 147 126, exit 60 93, exit_group 231 94, wait4 61 260, waitid 247 95, capget 125 90
""")

# Pairs of connected sockets, which reach no other process.
STREAMS = _table("""
recvfrom 45 207, recvmsg 47 212, sendto 44 206, shutdown 48 210, getsockopt 55 209,
getsockname 51 204, getpeername 52 205
""")

# A message can have descriptors. Deleted files in the queue of a socket are in no table of open files, so that only the
# size of a file system of the session limits them.
DESCRIPTORS = _table("sendmsg 46 211")

# Allowed for some arguments; see `seccomp`.
CONDITIONAL = _table("""
mmap 9 222, socketpair 53 199, setsockopt 54 208, fcntl 72 25, ioctl 16 29, prctl 157 167, clone 56 220,
kill 62 129, tkill 200 130, tgkill 234 131, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, prlimit64 302 261
""")

# Allowed where the session has its own PID namespace.
NEW_PROCESSES = _table("""
fork 57 -, vfork 58 -, setpgid 109 154, setsid 112 157
""")

# Modes, owners, times and attributes of files: landlock does not check them, so they are allowed only in a private
# view.
ATTRIBUTES = _table("""
chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -, lchown 94 -, fchown 93 55,
fchownat 260 54, utime 132 -, utimes 235 -, utimensat 280 88, futimesat 261 -, getxattr 191 8, lgetxattr 192 9,
fgetxattr 193 10, setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15,
fremovexattr 199 16, listxattr 194 11, llistxattr 195 12, flistxattr 196 13
""")

# Refused with `EPERM`, so that Python raises `PermissionError`. Unlisted calls are refused with `ENOSYS`.
REFUSED = _table("""
socket 41 198, bind 49 200, connect 42 203, listen 50 201, accept 43 202, accept4 288 242, execve 59 221,
execveat 322 281, timer_create 222 107, ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271,
mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, unshare 272 97, setns 308 268, memfd_create 319 279,
memfd_secret 447 447, bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, io_uring_setup 425 425,
io_uring_enter 426 426, io_uring_register 427 427, keyctl 250 219, add_key 248 217, request_key 249 218,
shmget 29 194, shmat 30 196, shmctl 31 195, semget 64 190, semop 65 193, semctl 66 191, msgget 68 186,
msgsnd 69 189, msgrcv 70 188, msgctl 71 187, mq_open 240 180, mknod 133 -, mknodat 259 33, setuid 105 146,
setgid 106 144, setreuid 113 145, setregid 114 143, setresuid 117 147, setresgid 119 149, setgroups 116 159,
setfsuid 122 151, setfsgid 123 152, capset 126 91, pidfd_open 434 434, pidfd_getfd 438 438,
pidfd_send_signal 424 424, name_to_handle_at 303 264, open_by_handle_at 304 265, fanotify_init 300 262,
inotify_init1 294 26, open_tree 428 428, move_mount 429 429, fsopen 430 430, fsmount 432 432,
mount_setattr 442 442, personality 135 92, reboot 169 142, kexec_load 246 104, init_module 175 105,
finit_module 313 273, delete_module 176 106, swapon 167 224, swapoff 168 225, syslog 103 116,
sethostname 170 161, setdomainname 171 162, settimeofday 164 170, clock_settime 227 112, adjtimex 159 171,
acct 163 89, quotactl 179 60, kcmp 312 272, process_madvise 440 440, move_pages 279 239, migrate_pages 256 238,
sched_setaffinity 203 122, sched_setparam 142 118, sched_setscheduler 144 119, sched_setattr 314 274,
setpriority 141 140, ioprio_set 251 30, sync 162 81, syncfs 306 267
""")

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
SECCOMP = {"x86_64": 317, "aarch64": 277}.get(kernel.MACHINE, 317)
PIVOT_ROOT = REFUSED["pivot_root"]
