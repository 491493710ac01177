//go:build linux

package proc_test

import (
	"context"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
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
		items := suite.Size(40, 500)
		c := newCourse(t, items, `test $1 != item7`)
		c.limits.Limits.Concurrency = 4
		if rep, err := c.run(); err != nil || rep.Succeeded != items-1 || rep.Failed != 1 {
			t.Errorf("%+v, error %v", rep, err)
		}
	})
	t.Run("failures to start", func(t *testing.T) {
		c := newCourse(t, 20, "")
		c.cfg.Command.Args = []string{"/bin/true", strings.Repeat("too long", 32<<10)}
		c.limits.Limits.Concurrency, c.limits.Attempts = 4, 1
		if rep, err := c.run(); err != nil || rep.Failed != 20 {
			t.Errorf("%+v, error %v", rep, err)
		}
	})
	t.Run("persistent", func(t *testing.T) {
		suite.FullOnly(t) // it waits between the starts
		c := newCourse(t, 20, `read -r line; exit 3`)
		c.cfg.Command.Args, c.cfg.Command.Persistent = c.cfg.Command.Args[:3], true
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
	c.limits.Limits.Concurrency = 20
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
		name  string
		takes func(n int) time.Duration // one of n commands
		ok    func(peak, least int) bool
	}{
		{"they do not slow each other down", func(int) time.Duration { return 300 * time.Millisecond },
			func(peak, _ int) bool { return peak > 12 && peak <= most }},
		{"each takes as long as there are others", func(n int) time.Duration { return time.Duration(n) * 40 * time.Millisecond },
			func(peak, least int) bool { return peak <= most && least <= 12 }},
	} {
		bubble(t, 160, func(t *testing.T, c *course) {
			c.limits.Limits.Concurrency, c.cfg.Workers = 0, most
			var running atomic.Int64
			many := make(chan int, 160)
			c.play(func(context.Context, call) int {
				n := int(running.Add(1))
				defer running.Add(-1)
				many <- n
				time.Sleep(tt.takes(n))
				return 0
			})
			c.succeed(160)
			var all []int
			for range 160 {
				all = append(all, <-many)
			}
			if peak, least := slices.Max(all), slices.Min(all[40:140]); !tt.ok(peak, least) {
				t.Errorf("%s: at most %d ran at once, later %d: %v", tt.name, peak, least, all)
			}
		})
	}
}
