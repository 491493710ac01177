//go:build linux

package proc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// A reset is told as it was stated, and commands start within two seconds after it.
func TestAResetIsKeptToTheSecond(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *course) {
		until := time.Now().Add(40 * time.Minute).Truncate(time.Second)
		c.play(func(_ context.Context, k call) int {
			if time.Now().Before(until) {
				return k.limited(until)
			}
			return 0
		})
		r := c.start(context.Background(), c.open())
		time.Sleep(time.Minute)
		state, err := work.LoadState(proc.StatePath(c.cfg.Dir))
		if err != nil || !state.RateLimit.Until.Equal(until) {
			t.Errorf("the limit is told until %v, error %v, want %v", state.RateLimit.Until, err, until)
		}
		if rep, err := r.ended(); err != nil || rep.Succeeded != 3 {
			t.Errorf("%+v, error %v", rep, err)
		}
		if ran := c.began("item"); len(ran) != 4 || ran[1].Before(until) || ran[1].Sub(until) > 2*time.Second {
			t.Errorf("commands started at %v, the reset was at %v", ran, until)
		}
	})
}

// A reset is told to the second at best: a command that comes a moment too early is tried again soon.
func TestAResetThatIsAMomentLate(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *course) {
		until := time.Now().Add(40 * time.Minute).Truncate(time.Second)
		c.play(func(_ context.Context, k call) int {
			if time.Now().Before(until.Add(700 * time.Millisecond)) {
				return k.limited(until)
			}
			return 0
		})
		c.succeed(1)
		if ran := c.began("item"); len(ran) != 3 || ran[2].Sub(until) > 2*time.Second {
			t.Errorf("commands started at %v, the reset was at %v", ran, until)
		}
	})
}

// A wait that is stated is waited for: no command is spent on a test.
func TestAStatedWaitIsNotTested(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *course) {
		began := time.Now()
		c.play(func(_ context.Context, k call) int {
			if time.Since(began) < 30*time.Second {
				return k.say("rate limit: try again in 30 seconds\n")
			}
			return 0
		})
		c.succeed(2)
		if ran := c.began("item"); len(ran) != 3 || ran[1].Sub(began) > 32*time.Second {
			t.Errorf("commands started at %v, the first at %v", ran, began)
		}
	})
}

// A harness states a limit of its agent in a message of its own, on standard error or in a record.
func TestAMessageOfAHarnessIsALimit(t *testing.T) {
	for name, write := range map[string]func(k call, dir, message string) error{
		"standard error": func(k call, _, message string) error { _, err := fmt.Fprintln(k.Stderr, message); return err },
		"a result file": func(_ call, dir, message string) error {
			return os.WriteFile(filepath.Join(dir, "said.json"), fmt.Appendf(nil, `{"error":%q}`, message), 0o600)
		},
		"a record of a failed try": func(_ call, dir, message string) error {
			aside := filepath.Join(dir, ".failed", "run_01", "agent")
			return errors.Join(os.MkdirAll(aside, 0o700),
				os.WriteFile(filepath.Join(aside, "result.json"), fmt.Appendf(nil, `{"exit_code":-1,"stderr":%q}`, message), 0o600))
		},
	} {
		for _, cli := range []string{"claude", ""} {
			bubble(t, 1, func(t *testing.T, c *course) {
				c.cfg.Verdict.ResultFile, c.limits.Attempts = "said.json", 1
				if cli != "" {
					c.cfg.Verdict.CLI = agents.Recognise(cli)
				}
				until := time.Now().Add(2 * time.Hour).Truncate(time.Hour)
				messages := []string{"Rate limit from agent: You've hit your limit · resets " + until.UTC().Format("3pm (UTC)"), "rate limit: try again in 90 seconds"}
				c.play(func(_ context.Context, k call) int {
					if k.nth > len(messages) {
						k.say("42")
						return 0
					}
					if err := write(k, k.itemDir(), messages[k.nth-1]); err != nil {
						t.Error(err)
					}
					return 1
				})
				c.succeed(1)
				ran := c.began("item")
				if r := c.results()[0]; len(ran) != 3 || r.Attempts != 1 || r.Throttles != 2 {
					t.Fatalf("%s of %q: ran at %v, %+v", name, cli, ran, r)
				}
				if first, second := ran[1].Sub(until), ran[2].Sub(ran[1]); first < 0 || first > 2*time.Second || second < 90*time.Second || second > 92*time.Second {
					t.Errorf("%s of %q: tried %v after the reset and then after %v", name, cli, first, second)
				}
			})
		}
	}
}

// An item that meets a limit again right after each reset fails like another one, and one that a real limit holds up does not.
func TestALimitThatNoResetEndsIsAFailure(t *testing.T) {
	for _, tt := range []struct {
		name, words string
		items       int           // of which the third or last one meets the limit,
		times       int           // so often; 0: always
		least       time.Duration // that it takes until it has a result
	}{
		{"a stated wait", "rate limit: try again in 7 seconds\n", 1, 0, time.Minute},
		{"a stated wait that ends", "rate limit: try again in 7 seconds\n", 1, 5, 35 * time.Second},
		{"a usage window", "You've hit your limit · resets in 20 minutes\n", 2, 0, 100 * time.Minute},
		{"nothing stated", "API Error: Rate limit reached\n", 1, 0, 6 * time.Hour},
		{"nothing stated, and others succeed", "API Error: Rate limit reached\n", 24, 0, 10 * time.Minute},
	} {
		bubble(t, tt.items, func(t *testing.T, c *course) {
			if c.limits.Attempts = 2; tt.items > 2 {
				c.limits.Limits.RPM = 2
			}
			began, last := time.Now(), fmt.Sprintf("item%d", min(tt.items, 3))
			c.play(func(_ context.Context, k call) int {
				if k.last == last && (tt.times == 0 || k.nth <= tt.times) {
					return k.say("%s", tt.words)
				}
				return 0
			})
			ctx, stop := context.WithTimeout(t.Context(), 2*tt.least+6*time.Minute)
			defer stop()
			rep, err := c.start(ctx, c.open()).ended()
			failed := tt.times == 0
			if want := map[bool]int{true: 1}[failed]; err != nil || rep.Failed != want || rep.Kinds[sluice.CommandFailed] != want || rep.Left != 0 {
				t.Errorf("%s: %+v, error %v", tt.name, rep, err)
			}
			ran := c.began(last)
			if took := ran[len(ran)-1].Sub(began); len(ran) < 6 || took < tt.least || took > 2*tt.least+5*time.Minute {
				t.Errorf("%s: %d runs in %v, want %v", tt.name, len(ran), took, tt.least)
			}
		})
	}
}

// A rejection of the preflight pauses all, and counts for no item.
func TestTheItemsDoNotCountThePreflight(t *testing.T) {
	for kind, words := range map[sluice.Kind]string{
		sluice.UsageWindow: "You've hit your limit · resets in 3 hours\n", sluice.RateLimit: "API Error: Rate limit reached\n",
		sluice.Overloaded: "API Error: Overloaded\n",
	} {
		bubble(t, 4, func(t *testing.T, c *course) {
			c.limits.Limits.Concurrency = 2
			c.cfg.Limits.Preflight = preflight
			c.play(func(_ context.Context, k call) int {
				if k.last == "preflight" && k.nth <= 2 {
					return k.say("%s", words)
				}
				return 0
			})
			rep := c.succeed(4)
			for _, r := range c.results() {
				if r.Throttles != 0 || r.Attempts != 1 {
					t.Errorf("%v: item %s has %d attempts, %d throttles", kind, r.ID, r.Attempts, r.Throttles)
				}
			}
			throttles := 0
			for _, lane := range c.cfg.Limits.Scheduler.Snapshot().Lanes {
				throttles += lane.Throttles
			}
			if n := len(c.began("item")); n != 4 || rep.Run.Attempts != 4 || throttles != 0 || c.cfg.Pauses.Count() == 0 {
				t.Errorf("%v: %d commands, %d attempts, %d throttles, %d pauses", kind, n, rep.Run.Attempts, throttles, c.cfg.Pauses.Count())
			}
		})
	}
}

// A result file that several commands may have written says nothing of any of them; one of its own does, wherever it is.
func TestAResultFileIsOfItsItemAlone(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		writes     func(k call) string // where the first item's command writes
		failed     int
	}{
		{"one for all", "said.json", func(call) string { return "said.json" }, 0},
		{"one for each", "said-{}.json", func(call) string { return "said-item1.json" }, 1},
		{"below the item's directory", "said.json", func(k call) string { return filepath.Join(k.itemDir(), "said.json") }, 1},
		{"in another item's directory", "../2-2/said.json", func(k call) string { return filepath.Join(k.itemDir(), "../2-2/said.json") }, 0},
	} {
		bubble(t, 2, func(t *testing.T, c *course) {
			c.limits.Limits.Concurrency, c.limits.Attempts = 2, 1
			t.Chdir(c.path(""))
			c.cfg.Verdict.ResultFile = tt.file
			c.play(func(_ context.Context, k call) int {
				time.Sleep(time.Second)
				if k.last == "item1" {
					if err := os.WriteFile(tt.writes(k), []byte(`{"kind":"bad_request","message":"no"}`), 0o600); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(time.Second)
				return 0
			})
			rep, err := c.run()
			if err != nil || rep.Failed != tt.failed {
				t.Errorf("%s: %+v, error %v", tt.name, rep.Summary, err)
			}
			for _, r := range c.results() {
				if r.ID == "2" && r.Kind != sluice.OK {
					t.Errorf("%s: the second item is %v (%+v)", tt.name, r.Kind, r.Fault)
				}
			}
		})
	}
}

// An answer that is not accepted is a failed attempt.
func TestAnAnswerIsChecked(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *course) {
		c.cfg.Verdict.Check = func(r provider.Reply) error {
			if r.Text != "42" {
				return errors.New("it is " + r.Text)
			}
			return nil
		}
		c.play(func(_ context.Context, k call) int {
			if k.last == "item2" && k.nth == 2 || k.last == "item1" {
				k.say("42\n")
				return 0
			}
			k.say("41\n")
			return 0
		})
		c.succeed(2)
		if n := len(c.began("item2")); n != 2 {
			t.Errorf("%d attempts", n)
		}
		b, err := os.ReadFile(filepath.Join(c.cfg.Dir, "2-2", ".failed", "1", "result.json"))
		if err != nil || !strings.Contains(string(b), `"kind":"invalid_output"`) || !strings.Contains(string(b), "it is 41") {
			t.Errorf("%s, error %v", b, err)
		}
	})
}
