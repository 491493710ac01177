package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/command"
)

// Runner measures sections. Root and Book are needed.
type Runner struct {
	Root   string // of the module
	Book   *Book
	Save   func() error // is called whenever a step was measured
	Quick  bool         // short looks
	Rounds int          // how often each command is run; 0: as the steps say
	Log    io.Writer    // is told what is under way; nil discards
}

// Run measures a section. What was measured is kept, whatever becomes of the rest. A command that fails is an error, once the
// section is over; ctx ends it at once.
func (r *Runner) Run(ctx context.Context, s Section) error {
	var failed error
	for _, step := range s.Steps {
		name := s.Name + "/" + step.Name
		if why := missing(step.Needs); why != "" {
			r.logf("%s: not measured: %s", name, why)
			r.Book.missed(s.Name, step.Name, why)
		} else {
			record, err := r.measure(ctx, name, step)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
			}
			record.Section, record.Step = s.Name, step.Name
			if len(record.Figures) == 0 {
				r.Book.missed(s.Name, step.Name, "its command printed no figure")
				failed = errors.Join(failed, fmt.Errorf("%s: no figure was printed", name))
			} else {
				r.Book.put(record)
			}
		}
		if err := r.Save(); err != nil {
			return err
		}
	}
	return failed
}

// missing names the programs and, with a $, the variables that are not there.
func missing(needs []string) string {
	var absent []string
	for _, name := range needs {
		if variable, ok := strings.CutPrefix(name, "$"); ok {
			if os.Getenv(variable) == "" {
				absent = append(absent, name)
			}
		} else if _, err := exec.LookPath(name); err != nil {
			absent = append(absent, name)
		}
	}
	switch len(absent) {
	case 0:
		return ""
	case 1:
		return absent[0] + " is not there"
	}
	return strings.Join(absent, " and ") + " are not there"
}

// measure runs a step's command in all its rounds. An error says that a command failed; what was measured is in the Record.
func (r *Runner) measure(ctx context.Context, name string, step Step) (*Record, error) {
	words, env := step.Command, step.Env
	rounds := max(1, step.Rounds)
	if r.Quick {
		words, env = step.short()
		rounds = 1
	}
	if r.Rounds > 0 {
		rounds = r.Rounds
	}
	record := &Record{Date: time.Now().UTC().Truncate(time.Minute), Commit: commit(ctx, r.Root), Machine: thisMachine(), Load: load(),
		Rounds: rounds, Quick: r.Quick && (step.Quick != nil || step.Briefly != nil || rounds < step.Rounds)}
	var figures []Figure
	var failed error
	began := time.Now()
	for round := range rounds {
		r.logf("%s (%d of %d): %s", name, round+1, rounds, step.line(r.Quick))
		output, took, err := r.once(ctx, step, words, env)
		if step.Read != nil {
			figures = append(figures, step.Read(output)...)
		} else {
			figures = append(figures, Figure{Name: "the command", Unit: "s", Values: []float64{took.Seconds()}})
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			r.logf("%s", tail(output))
			failed = err
			record.Failed = err.Error()
		}
	}
	record.Took = float64(time.Since(began).Round(100*time.Millisecond)) / float64(time.Second)
	record.Figures = merged(figures)
	return record, failed
}

// once runs a step's command, with what it needs beside it.
func (r *Runner) once(ctx context.Context, step Step, words, env []string) (output string, took time.Duration, err error) {
	env = append(os.Environ(), env...)
	if step.Fresh {
		fresh, remove, err := home()
		if err != nil {
			return "", 0, err
		}
		defer func() { err = errors.Join(err, remove()) }()
		env = append(env, fresh...)
	}
	if step.Engine {
		url, end, err := engine(ctx)
		if err != nil {
			return "", 0, err
		}
		defer end()
		env = append(env, "SLUICE_TEST_REDIS="+url)
	}
	var out strings.Builder
	began := time.Now()
	_, err = command.Run(ctx, command.Spec{Args: words, Dir: r.Root, Env: env, Stdout: &out, Stderr: &out})
	return out.String(), time.Since(began), err
}

// engine starts a Redis of its own, and returns its address and what ends it.
func engine(ctx context.Context) (url string, end func(), err error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	dir, err := os.MkdirTemp("", "sluice-bench-engine-")
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := command.Run(ctx, command.Spec{Dir: dir, Env: os.Environ(),
			Args: []string{"redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes"}})
		ended <- err
	}()
	end = func() {
		cancel()
		<-ended
		os.RemoveAll(dir)
	}
	for range 100 {
		if conn, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			conn.Close()
			return "redis://127.0.0.1:" + port, end, nil
		}
		select {
		case err := <-ended:
			cancel()
			os.RemoveAll(dir)
			return "", nil, fmt.Errorf("redis-server: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
	end()
	return "", nil, errors.New("redis-server does not listen")
}

// tail is the end of what a command printed.
func tail(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

func (r *Runner) logf(format string, args ...any) {
	if r.Log != nil {
		fmt.Fprintf(r.Log, "bench: "+format+"\n", args...)
	}
}

// Root is the directory of the module that holds dir.
func Root(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if filepath.Dir(at) == at {
			return "", fmt.Errorf("%s: no go.mod is there or above", dir)
		}
	}
}
