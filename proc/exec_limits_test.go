//go:build linux

package proc_test

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// open files and goroutines of this process.
func held(t testing.TB) (files, goroutines int) {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(all), runtime.NumGoroutine()
}

func TestNothingIsHeldAfterARun(t *testing.T) {
	files, goroutines := held(t)
	t.Run("commands", func(t *testing.T) {
		c := newCourse(t, 500, `test $1 != item7`)
		c.limits.Limits.Concurrent = 4
		if rep, err := c.run(); err != nil || rep.Succeeded != 499 || rep.Failed != 1 {
			t.Errorf("%+v, error %v", rep, err)
		}
	})
	t.Run("failures to start", func(t *testing.T) {
		c := newCourse(t, 100, "")
		c.cfg.Command.Args = []string{"/bin/true", strings.Repeat("too long", 32<<10)}
		c.limits.Limits.Concurrent, c.limits.Attempts = 4, 1
		if rep, err := c.run(); err != nil || rep.Failed != 100 {
			t.Errorf("%+v, error %v", rep, err)
		}
	})
	t.Run("persistent", func(t *testing.T) {
		c := newCourse(t, 20, `read -r line; exit 3`)
		c.cfg.Command.Args, c.cfg.Persistent = c.cfg.Command.Args[:3], true
		_, _ = c.run()
	})
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		f, g := held(t)
		if f <= files && g <= goroutines {
			return
		}
		if time.Now().After(end) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d files and %d goroutines were held, now %d and %d\n%s", files, goroutines, f, g, buf[:runtime.Stack(buf, true)])
		}
	}
}

// Where the system takes no more at once, fewer run.
func TestWhereFilesAreShortFewerRun(t *testing.T) {
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	c := newCourse(t, 40, `sleep 0.1`)
	c.limits.Limits.Concurrent = 20
	x := c.open()
	files, _ := held(t)
	now := syscall.Rlimit{Cur: uint64(files) + 40, Max: was.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)
	rep, err := c.start(t.Context(), x).ended()
	if err != nil || rep.Succeeded != 40 {
		t.Errorf("%+v, error %v", rep.Summary, err)
	}
}

// Without a number, as many run as help.
func TestAsManyRunAsHelp(t *testing.T) {
	const most = 24
	for _, tt := range []struct {
		name   string
		script string // notes how many run
		ok     func(peak, least int64) bool
	}{
		{"they do not slow each other down", `mkdir $D/on.$$; ls -d $D/on.* | wc -l >> $D/many; sleep 0.3; rmdir $D/on.$$`,
			func(peak, _ int64) bool { return peak > 16 && peak <= most }},
		{"each takes as long as there are others", `mkdir $D/on.$$; n=$(ls -d $D/on.* | wc -l); echo $n >> $D/many
sleep $(printf 0.%02d $(($n * 4))); rmdir $D/on.$$`,
			func(peak, least int64) bool { return peak <= most && least <= 12 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCourse(t, 160, tt.script)
			c.limits.Limits.Concurrent, c.cfg.Workers = 0, most
			if rep, err := c.run(); err != nil || rep.Succeeded != 160 {
				t.Fatalf("%+v, error %v", rep, err)
			}
			many := c.numbers("many")
			peak, least := slices.Max(many), slices.Min(many[40:140])
			if !tt.ok(peak, least) {
				t.Errorf("at most %d ran at once, later %d: %v", peak, least, many)
			}
		})
	}
}
