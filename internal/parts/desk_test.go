package parts_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/parts"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// bench is a desk, what it saves, and the provider that it is for.
type bench struct {
	t     *testing.T
	api   *double
	dir   string
	saved []byte
	saves int
	terms parts.Terms
	known provider.BatchAPI
	again bool
	log   *slog.Logger

	got   map[string]int // results by member
	parts int            // that were merged
}

func newBench(t *testing.T) *bench {
	return &bench{t: t, api: &double{takes: time.Hour, runs: map[string]int{}}, dir: filepath.Join(t.TempDir(), "parts"),
		got: map[string]int{}}
}

func (b *bench) open() *parts.Desk {
	b.t.Helper()
	d, err := b.tryOpen()
	if err != nil {
		b.t.Fatal(err)
	}
	return d
}

func (b *bench) tryOpen() (*parts.Desk, error) {
	return parts.Open(parts.Config{
		APIs: map[string]batchapi.API{"acme": b.api}, Known: map[string]provider.BatchAPI{"acme": b.known},
		Dir: b.dir, Saved: b.saved, Terms: b.terms, Resubmit: b.again, Logger: b.log,
		Save: func(s []byte) error { b.saved, b.saves = s, b.saves+1; return nil },
	})
}

func (b *bench) add(d *parts.Desk, from, to int) {
	b.t.Helper()
	for i := from; i < to; i++ {
		if _, err := d.Add("acme", memberOf(i), requestOf(i)); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := d.Flush(); err != nil {
		b.t.Fatal(err)
	}
}

func memberOf(i int) parts.Member {
	id := fmt.Sprintf("m%d", i)
	return parts.Member{ID: id, Hash: work.HashOf([]byte(id)), Tokens: 10}
}

func requestOf(i int) *batchapi.Request {
	return &batchapi.Request{Model: "model", Endpoint: provider.ChatCompletions, Body: fmt.Appendf(nil, `{"n":%d}`, i)}
}

// merge takes in what becomes ready, until nothing more will come.
func (b *bench) merge(d *parts.Desk) error {
	b.t.Helper()
	for {
		for p := d.Ready(); p != nil; p = d.Ready() {
			for r, err := range p.Results() {
				if err != nil {
					return err
				}
				if want := work.HashOf([]byte(r.Member.ID)); r.Member.Hash != want {
					b.t.Errorf("member %q has hash %v, want %v", r.Member.ID, r.Member.Hash, want)
				}
				b.got[r.Member.ID]++
			}
			if err := d.Merged(p); err != nil {
				return err
			}
			b.parts++
		}
		if d.Open() == 0 || d.Err() != nil {
			return d.Err()
		}
		<-d.Changed()
	}
}

// want fails unless each of so many members was run and answered once, and nothing is left.
func (b *bench) want(n int) {
	b.t.Helper()
	for i := range n {
		id := memberOf(i).ID
		if b.got[id] != 1 || b.api.runs[id] != 1 {
			b.t.Fatalf("member %s has %d results and was run %d times, want 1 and 1", id, b.got[id], b.api.runs[id])
		}
	}
	if len(b.got) != n {
		b.t.Fatalf("there are results of %d members, want %d", len(b.got), n)
	}
	if _, err := os.Stat(b.dir); !os.IsNotExist(err) {
		left, _ := os.ReadDir(b.dir)
		b.t.Fatalf("the directory is not gone, err %v: %v", err, left)
	}
}

func TestPartsAreSubmittedFetchedAndMerged(t *testing.T) {
	for _, nameless := range []bool{false, true} {
		t.Run(fmt.Sprint("nameless ", nameless), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.api.nameless, b.api.carries = nameless, 40*time.Minute
				b.api.bounds.Requests = 10
				d := b.open()
				d.Start(context.Background())
				b.add(d, 0, 25)
				if err := b.merge(d); err != nil {
					t.Fatal(err)
				}
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				b.want(25)
				if b.parts != 3 {
					t.Errorf("there were %d parts, want 3", b.parts)
				}
				if polls := b.api.gets; polls > 3*80 {
					t.Errorf("the batches of an hour were looked at %d times", polls)
				}
			})
		})
	}
}
