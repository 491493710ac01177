package batch_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
)

// ids returns the custom_ids of the lines of a file, in their order.
func ids(t testing.TB, name string) (all []string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		_, rest, _ := strings.Cut(line, `"custom_id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		all = append(all, id)
	}
	return all
}

// upTo are the ids from a to b.
func upTo(a, b int) (all []string) {
	for i := a; i <= b; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// shuffled answers after random times.
func shuffled(seed uint64, calls *int) http.RoundTripper {
	var mu sync.Mutex
	luck := rand.New(rand.NewPCG(seed, 9))
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		*calls++
		wait := time.Duration(luck.Int64N(int64(time.Second)))
		mu.Unlock()
		time.Sleep(wait)
		return (&stub{}).RoundTrip(r)
	})
}

// ordered is a config of a run in order of the input, with random times.
func (f files) ordered(t testing.TB, calls *int) batch.Config {
	cfg := f.config(t, shuffled(1, calls))
	cfg.Order = batch.OrderInput
	return cfg
}

// stopAt runs a batch that is drained once it has so many results.
func stopAt(t testing.TB, cfg batch.Config, n int) {
	t.Helper()
	var b *batch.Batch
	var mu sync.Mutex
	cfg.OnResult = func(*work.Result) {
		mu.Lock()
		defer mu.Unlock()
		if n--; n == 0 {
			b.Drain()
		}
	}
	b, err := batch.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Run(context.Background()); !errors.Is(err, work.ErrDrained) {
		t.Fatalf("error %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func (f files) isOrdered(t testing.TB, want []string) {
	t.Helper()
	if got := ids(t, f.out); !slices.Equal(got, want) {
		t.Errorf("the output has %v, want %v", got, want)
	}
	left, err := filepath.Glob(f.out + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range left {
		if name != f.out && !strings.Contains(name, ".state.json") {
			t.Errorf("%s is left", name)
		}
	}
}

func TestTheOutputHasTheOrderOfTheInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, calls := newFiles(t, chats(100)), 0
		cfg := f.ordered(t, &calls)
		stopAt(t, cfg, 30)
		if _, err := os.Stat(f.out); err == nil {
			t.Error("the output is there before all results are")
		}
		have := ids(t, f.out+".journal")
		if len(have) < 30 || slices.IsSorted(have) {
			t.Errorf("the journal has %v", have)
		}
		if _, err := run(t, f.config(t, &stub{})); err == nil || !strings.Contains(err.Error(), ".journal") {
			t.Errorf("a run in another order: %v", err)
		}
		if _, err := os.Stat(f.out); err == nil {
			t.Error("the refused run left an output")
		}
		if _, err := run(t, cfg); err != nil {
			t.Fatal(err)
		}
		f.isOrdered(t, upTo(1, 100))
		if calls != 100 {
			t.Errorf("%d calls", calls)
		}
		if state, err := work.LoadState(work.StatePath(f.out)); err != nil || state.Status != work.Completed || state.Done+state.Already != 100 {
			t.Errorf("state %+v, error %v", state, err)
		}
	})
}

func TestAnOutputIsTakenOverAndReplacedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, calls := newFiles(t, chats(20)), 0
		if _, err := run(t, f.config(t, shuffled(2, &calls))); err != nil {
			t.Fatal(err)
		}
		before := ids(t, f.out)
		f.input(t, chats(40))
		cfg := f.ordered(t, &calls)
		stopAt(t, cfg, 5)
		if !slices.Equal(ids(t, f.out), before) {
			t.Error("the output changed before the end")
		}
		if have := ids(t, f.out+".journal"); len(have) < 25 || !slices.Equal(have[:20], before) {
			t.Errorf("the journal has %v", have)
		}
		if _, err := run(t, cfg); err != nil {
			t.Fatal(err)
		}
		f.isOrdered(t, upTo(1, 40))
		if calls != 40 {
			t.Errorf("%d calls", calls)
		}
	})
}

func TestFailedAndChangedItemsRunAgainInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, calls := newFiles(t, chats(30)), 0
		good := shuffled(3, &calls)
		var answered atomic.Int32
		cfg := f.ordered(t, &calls)
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := good.RoundTrip(r)
			if answered.Add(1)%3 == 0 {
				return (&stub{status: 400, answer: `{"error":{"message":"bad"}}`}).RoundTrip(r)
			}
			return resp, err
		})
		if rep, err := run(t, cfg); err != nil || rep.Report.Failed == 0 {
			t.Fatalf("failed %d, error %v", rep.Report.Failed, err)
		}
		f.isOrdered(t, upTo(1, 30))
		before, _ := os.ReadFile(f.out)
		cfg.Transport, cfg.RetryFailed = good, true
		stopAt(t, cfg, 1)
		if now, _ := os.ReadFile(f.out); string(now) != string(before) {
			t.Error("the output changed before the end")
		}
		if rep, err := run(t, cfg); err != nil || rep.AlreadyFailed+rep.Report.Failed != 0 {
			t.Fatalf("failed %d, error %v", rep.Report.Failed, err)
		}
		f.isOrdered(t, upTo(1, 30))
		f.input(t, strings.Replace(chats(30), "What is 7?", "What is seven?", 1))
		cfg.RetryFailed, cfg.Changed = false, batch.ChangedRedo
		if rep, err := run(t, cfg); err != nil || rep.Done != 1 {
			t.Fatalf("done %d, error %v", rep.Done, err)
		}
		f.isOrdered(t, upTo(1, 30))
	})
}

func TestLinesOfNoInputComeLastAndNoneIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, calls := newFiles(t, chats(10)), 0
		if _, err := run(t, f.config(t, shuffled(4, &calls))); err != nil {
			t.Fatal(err)
		}
		b, _ := os.ReadFile(f.out)
		first, _, _ := strings.Cut(string(b), "\n")
		was := ids(t, f.out)
		twice := was[0]
		if err := os.WriteFile(f.out, append(b, first+"\n"...), 0o644); err != nil { // by somebody's hand
			t.Fatal(err)
		}
		f.input(t, chat(12)+"\n"+chat(3)+"\n\n"+chat(1)+"\n"+chat(11)+"\n")
		if _, err := run(t, f.ordered(t, &calls)); err != nil {
			t.Fatal(err)
		}
		want := []string{"12", "3", "1", "11"}
		placed := map[string]bool{"3": true, "1": true}
		for _, id := range append(was, twice) {
			if !placed[id] {
				want = append(want, id)
			}
			placed[id] = placed[id] && id != twice // its second line is nobody's
		}
		if got := ids(t, f.out); !slices.Equal(got, want) {
			t.Errorf("the output has %v, want %v", got, want)
		}
	})
}

func TestStandardInputIsInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, calls := newFiles(t, ""), 0
		cfg := f.ordered(t, &calls)
		cfg.Input = "-"
		for round, n := range []int{20, 40} {
			cfg.Stdin = strings.NewReader(chats(n))
			if _, err := run(t, cfg); err != nil {
				t.Fatal(err)
			}
			f.isOrdered(t, upTo(1, n))
			if calls != n {
				t.Errorf("round %d: %d calls", round, calls)
			}
		}
	})
}

func TestADoneOutputIsSortedAndLeftAloneIfItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, calls := newFiles(t, chats(30)), 0
		if _, err := run(t, f.config(t, shuffled(5, &calls))); err != nil {
			t.Fatal(err)
		}
		cfg := f.ordered(t, &calls)
		if _, err := run(t, cfg); err != nil {
			t.Fatal(err)
		}
		f.isOrdered(t, upTo(1, 30))
		before, _ := os.Stat(f.out)
		if _, err := run(t, cfg); err != nil {
			t.Fatal(err)
		}
		if after, _ := os.Stat(f.out); !os.SameFile(before, after) || calls != 30 {
			t.Errorf("it was written again, or called: %d calls", calls)
		}
	})
}

// TestAKillAtTheEndCostsNothing has what a kill leaves between the rename of the output and the end of the journal, and
// while the output is written.
func TestAKillAtTheEndCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, calls := newFiles(t, chats(30)), 0
		cfg := f.ordered(t, &calls)
		cfg.OnResult = func(*work.Result) {
			if len(ids(t, f.out+".journal")) == 30 {
				if err := os.Link(f.out+".journal", f.out+".saved"); err != nil && !errors.Is(err, fs.ErrExist) {
					t.Error(err)
				}
			}
		}
		if _, err := run(t, cfg); err != nil {
			t.Fatal(err)
		}
		cfg.OnResult = nil
		for _, half := range []bool{false, true} {
			if err := os.Link(f.out+".saved", f.out+".journal"); err != nil {
				t.Fatal(err)
			}
			if half {
				os.Remove(f.out)
				if err := os.WriteFile(f.out+".order.tmp", []byte(`{"id":"batch_req_`), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := run(t, cfg); err != nil {
				t.Fatal(err)
			}
			os.Rename(f.out+".saved", f.in+".saved")
			f.isOrdered(t, upTo(1, 30))
			os.Rename(f.in+".saved", f.out+".saved")
		}
		if calls != 30 {
			t.Errorf("%d calls", calls)
		}
	})
}

func TestPuttingInOrderFollowsNoLink(t *testing.T) {
	f := newFiles(t, chats(30))
	other := filepath.Join(t.TempDir(), "other")
	err := os.WriteFile(other, []byte("precious"), 0o644)
	if err == nil {
		err = os.Symlink(other, f.out+".order.tmp")
	}
	if err != nil {
		t.Skip(err)
	}
	cfg := f.config(t, &stub{})
	cfg.Order = batch.OrderInput
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	f.isOrdered(t, upTo(1, 30))
	if b, err := os.ReadFile(other); string(b) != "precious" {
		t.Errorf("the other file holds %.40q, %v", b, err)
	}
}

func TestRunsInDifferentOrdersExcludeEachOther(t *testing.T) {
	for _, existing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { // a run waits for one that ends
			f := newFiles(t, chats(3))
			if existing {
				if _, err := run(t, f.config(t, &stub{})); err != nil {
					t.Fatal(err)
				}
				f.input(t, chats(5))
			}
			for _, first := range []batch.Order{batch.OrderCompletion, batch.OrderInput} {
				for _, second := range []batch.Order{batch.OrderCompletion, batch.OrderInput} {
					cfg := f.config(t, &stub{})
					cfg.Order = first
					b, err := batch.Open(cfg)
					if err != nil {
						t.Fatal(err)
					}
					cfg.Order = second
					_, err = batch.Open(cfg)
					if locked, ok := errors.AsType[*work.LockedError](err); !ok || locked.PID != os.Getpid() {
						t.Errorf("existing %v, order %d beside %d: %v", existing, second, first, err)
					}
					if err := b.Close(); err != nil {
						t.Error(err)
					}
					if _, err := os.Stat(f.out + ".journal"); err == nil {
						t.Error("a journal is left of a run that did nothing")
					}
					if _, err := os.Stat(f.out); (err == nil) != existing {
						t.Errorf("existing %v, output: %v", existing, err)
					}
				}
			}
		})
	}
}

func TestALinkedOutputInOrder(t *testing.T) {
	f, calls := newFiles(t, chats(5)), 0
	target := filepath.Join(t.TempDir(), "target.jsonl")
	if err := os.Symlink(target, f.out); err != nil {
		t.Skip(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if _, err := run(t, f.ordered(t, &calls)); err != nil {
			t.Fatal(err)
		}
	})
	if info, err := os.Lstat(f.out); err != nil || info.Mode()&fs.ModeSymlink == 0 || !slices.Equal(ids(t, target), upTo(1, 5)) {
		t.Errorf("%v, %v, %v", info, err, ids(t, target))
	}
}

func TestARunOfNothingLeavesAnEmptyOutput(t *testing.T) {
	f := newFiles(t, "\n")
	cfg := f.config(t, &stub{})
	cfg.Order = batch.OrderInput
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(f.out + "*"); len(left) != 3 { // with the state and its backup
		t.Errorf("left %v", left)
	}
	if info, err := os.Stat(f.out); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v", info, err)
	}
	// The journal is no input.
	if err := os.WriteFile(f.out+".journal", []byte(chats(1)), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg.Input = f.out + ".journal"
	if _, err := batch.Open(cfg); err == nil || !strings.Contains(err.Error(), "is the input") {
		t.Errorf("error %v", err)
	}
}
