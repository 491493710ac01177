package parts_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/parts"
)

func TestAFileThatWasHandedOverIsFoundByTheNextProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d := b.open()
		ctx, cancel := context.WithCancel(context.Background())
		b.api.fault = func(op string) fault { // the process dies before it hears of its file
			if op == "upload" {
				cancel()
				return lostAfter
			}
			return none
		}
		d.Start(ctx)
		b.add(d, 0, 5)
		synctest.Wait()
		_ = d.Close()
		if len(b.api.files) != 1 || len(b.api.batches) != 0 {
			t.Fatalf("%d files and %d batches are at the provider", len(b.api.files), len(b.api.batches))
		}
		b.api.fault = nil
		d = b.open()
		defer d.Close()
		d.Start(context.Background())
		if err := b.merge(d); err != nil {
			t.Fatal(err)
		}
		if b.want(5); len(b.api.files) != 1 {
			t.Errorf("the file was handed over %d times", len(b.api.files))
		}
	})
}

// TestPartsThatGuessTakeDifferentBatches has many parts without names look at once, each of which may be any of the batches.
func TestPartsThatGuessTakeDifferentBatches(t *testing.T) {
	const count = 24
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.api.nameless, b.api.bounds.Requests = true, 1
			left := count
			b.api.fault = func(op string) fault {
				if op != "create" || left == 0 {
					return none
				}
				left--
				return lostAfter
			}
			d := b.open()
			defer d.Close()
			d.Start(context.Background())
			b.add(d, 0, count)
			<-time.After(10 * time.Minute)
			synctest.Wait()
			taken := map[string]string{}
			for _, s := range d.Status() {
				if other := taken[s.Batch]; s.Batch == "" || other != "" {
					t.Errorf("part %s has batch %q, as has %q", s.Tag, s.Batch, other)
				}
				taken[s.Batch] = s.Tag
			}
			if err := b.merge(d); err != nil {
				t.Fatal(err)
			}
			b.api.runAll()
			if b.want(count); len(b.api.batches) != count {
				t.Errorf("%d batches were made, want %d", len(b.api.batches), count)
			}
		})
	}
}

func TestASplitLeavesNoFilesOfTheOldPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.api.refuse = func(n int, _ *batchapi.Part, _ *doubled) *batchapi.Problem {
			if n > 0 {
				return nil
			}
			return &batchapi.Problem{Kind: batchapi.TooLarge, Message: "too many"}
		}
		d := b.open()
		defer d.Close()
		d.Start(context.Background())
		b.add(d, 0, 4)
		<-time.After(10 * time.Minute)
		synctest.Wait()
		open := map[string]bool{}
		for _, s := range d.Status() {
			open[s.Tag] = s.State != parts.Dropped
		}
		names, err := os.ReadDir(b.dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if tag, _, _ := strings.Cut(n.Name(), "."); !open[tag] {
				t.Errorf("%s is left of a part that was split", n.Name())
			}
		}
		if len(names) != 4 {
			t.Errorf("there are %d files, want requests and members of two parts", len(names))
		}
	})
}

func TestARefusalOfACreateIsReadAsThatOfABatch(t *testing.T) {
	for _, test := range []struct {
		problem batchapi.Problem
		ran     int // of the members
		parts   int // that were merged
	}{
		{batchapi.Problem{Kind: batchapi.NoRoom, Message: "too much is enqueued"}, 6, 1},
		{batchapi.Problem{Kind: batchapi.NoRoom, Message: "too much is enqueued", Tokens: 30}, 6, 2},
		{batchapi.Problem{Kind: batchapi.TooLarge, Message: "too many"}, 6, 2},
		{batchapi.Problem{Kind: batchapi.Invalid, Message: "see lines", Lines: map[int]string{1: "wrong"}}, 5, 2},
	} {
		for _, op := range []string{"create", "upload"} {
			t.Run(fmt.Sprint(test.problem.Kind, " ", test.problem.Tokens, " ", op), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					b.api.fails = func(at string) error {
						if at != op {
							return nil
						}
						b.api.fails = nil
						return batchapi.Refusal(test.problem, saying(sluice.BadRequest, test.problem.Message))
					}
					if err := through(b, 6); err != nil {
						t.Fatal(err)
					}
					ran := 0
					for _, n := range b.api.runs {
						ran += n
					}
					if ran != test.ran || len(b.got) != 6 || b.parts != test.parts {
						t.Errorf("%d ran, %d have results of %d parts; want %d, 6 and %d", ran, len(b.got), b.parts, test.ran, test.parts)
					}
				})
			})
		}
	}
}

func TestAFileThatExpiredIsHandedOverAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.api.refuse = func(n int, _ *batchapi.Part, _ *doubled) *batchapi.Problem {
			if n > 0 {
				return nil
			}
			return &batchapi.Problem{Kind: batchapi.NoRoom}
		}
		d := b.open()
		d.Start(context.Background())
		b.add(d, 0, 5)
		<-time.After(2 * time.Second)
		synctest.Wait()
		d.Close()
		b.api.mu.Lock()
		b.api.files = []doubledFile{{}} // so that the next has another id
		b.api.mu.Unlock()
		d = b.open()
		defer d.Close()
		d.Start(context.Background())
		if err := b.merge(d); err != nil {
			t.Fatalf("%v: %+v", err, d.Status())
		}
		b.want(5)
	})
}

func TestAPartIsReadyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d := b.open()
		defer d.Close()
		d.Start(context.Background())
		b.add(d, 0, 5)
		<-time.After(2 * time.Hour)
		synctest.Wait()
		if d.Ready() == nil {
			t.Fatal("nothing is ready")
		}
		if p := d.Ready(); p != nil {
			t.Errorf("part %s is ready twice, though it is not merged", p.Status().Tag)
		}
	})
}

// A part is refused for lack of room and waits again; all is called off before who carries it has said another word.
func TestAPartThatIsCalledOffAsItBeginsToWaitIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.api.fails = func(at string) error {
			if at != "create" {
				return nil
			}
			return batchapi.Refusal(batchapi.Problem{Kind: batchapi.NoRoom, Message: "too much is enqueued"}, saying(sluice.BadRequest, "too much"))
		}
		var d *parts.Desk
		var before string
		cancelled := make(chan error, 1)
		d, err := parts.Open(parts.Config{
			APIs: map[string]batchapi.API{"acme": b.api}, Dir: b.dir, Save: func(saved []byte) error {
				all, err := parts.Read(saved)
				if err != nil || len(all) == 0 {
					return err
				}
				was := before
				if before = all[0].State; was == parts.Submitting && before == parts.Waiting {
					go func() { cancelled <- d.Cancel() }()
					for d.Status()[0].State != parts.Dropped { // what it saves waits for us
						runtime.Gosched()
					}
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		d.Start(context.Background())
		b.add(d, 0, 3)
		if err := <-cancelled; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := d.Status()[0]; s.State != parts.Dropped || s.Problem != nil {
			t.Errorf("state %s, problem %+v", s.State, s.Problem)
		}
		if _, err := os.Stat(b.dir); !os.IsNotExist(err) {
			t.Errorf("its directory is left: %v", err)
		}
	})
}
