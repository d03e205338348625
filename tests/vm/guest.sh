# The part of `cargo xtask kernels` that runs in the virtual machine, as root, on the host's files (read-only but for the
# target directory). Lines that begin with `vm: ` are for the table; see xtask/src/kernels/table.rs.
# Set by whoever reads this in: ROOT (the workspace), TARGET, PLACE (a directory for this machine's files).

export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export TMPDIR=/run RUST_BACKTRACE=0 INSTA_UPDATE=no
# An emulated processor is some twenty times slower.
export VRAMTRACE_PATIENCE=600
TRACER="$TARGET/debug/vramtrace"
cd "$ROOT/tests" || exit 1

ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t securityfs securityfs /sys/kernel/security
mount -t tracefs tracefs /sys/kernel/tracing
ip link set lo up
ulimit -l unlimited

# What the kernel offers, by the tracer's own word. Where something is missing it refuses to start, and says why.
facts() {
    echo "vm: release $(uname -r)"
    "$TRACER" check | sed -n '/^kernel/,/^driver/s/^  *//p' >/run/check
    sed 's/^/vm: check /' /run/check
    SUPPORTED=yes
    if grep -q '^missing' /run/check; then
        SUPPORTED=no
        echo "vm: refused $("$TRACER" run --as-root -o /run/facts.vrt -- true 2>&1)"
    fi
}

# Runs tests of one program: SUITE PROGRAM [ARGUMENTS]. Where tracing is refused, only those that look at how.
tests() {
    suite=$1
    shift
    if [ $SUPPORTED = no ] && [ "$suite" != kernels ]; then
        return
    fi
    begin=$(date +%s)
    "$@" >"$PLACE/$suite.log" 2>&1
    sed -n 's/^probes: /vm: probes /p' "$PLACE/$suite.log"
    sed -n "s/^test \([a-z_0-9:]*\) \.\.\. \(ok\|FAILED\|ignored\).*/vm: test $suite::\1 \2/p" "$PLACE/$suite.log"
    if ! grep -q '^test result: ' "$PLACE/$suite.log"; then
        echo "vm: test $suite FAILED"
    fi
    grep -A 12 '^---- ' "$PLACE/$suite.log" | sed 's/^/    /'
    echo "vm: suite $suite $(($(date +%s) - begin)) s"
}

# Makes the host harder and sees what tracing does: PROGRAM NAME works|refused COMMAND. Where it is refused as things are, it
# must be refused here too.
hardened() {
    expected=$3
    if [ $SUPPORTED = no ]; then
        expected=refused
    fi
    if ! sh -c "$4"; then
        echo "vm: test hardened::$2 FAILED"
    elif VRAMTRACE_EXPECT=$expected "$1" --nocapture --exact check_and_run_say_the_same >"$PLACE/hardened.log" 2>&1; then
        echo "vm: test hardened::$2 ok"
    else
        echo "vm: test hardened::$2 FAILED"
        sed 's/^/    /' "$PLACE/hardened.log"
    fi
    sed -n "s/^said: /vm: hardened $2: /p" "$PLACE/hardened.log"
}
