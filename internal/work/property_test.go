package work_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"pgregory.net/rapid"
)

// TestEveryItemIsRecordedOnce runs items whose calls fail at random, in runs that are drained, cancelled or cut off at
// random instants, each resuming from the lines of those before.
func TestEveryItemIsRecordedOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := plan{
			seed:    rapid.Uint64().Draw(rt, "seed"),
			items:   rapid.IntRange(0, 120).Draw(rt, "items"),
			slots:   rapid.IntRange(1, 12).Draw(rt, "slots"),
			lanes:   rapid.IntRange(1, 3).Draw(rt, "lanes"),
			queue:   rapid.IntRange(1, 40).Draw(rt, "queue"),
			workers: rapid.IntRange(1, 40).Draw(rt, "workers"),
			sync:    rapid.SampledFrom([]work.SyncMode{work.SyncEach, work.SyncInterval}).Draw(rt, "sync"),
			path:    journalPath(t),
		}
		var err error
		synctest.Test(t, func(t *testing.T) { err = p.check() })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// plan is one random history of runs.
type plan struct {
	seed                                uint64
	items, slots, lanes, queue, workers int
	sync                                work.SyncMode
	path                                string
	mu                                  sync.Mutex
}

func (p *plan) check() error {
	luck := rand.New(rand.NewPCG(p.seed, 1))
	for try := 0; ; try++ {
		if try == 60 {
			return errors.New("60 runs were not enough")
		}
		all, err := p.oneRun(luck, try >= 50)
		if err != nil {
			return fmt.Errorf("run %d: %w", try, err)
		}
		if all {
			break
		}
	}
	j, err := work.OpenJournal(p.path, work.JournalConfig{})
	if err != nil {
		return err
	}
	defer j.Close()
	n := 0
	for _, err := range j.Lines() {
		if err != nil {
			return err
		}
		n++
	}
	if n != p.items {
		return fmt.Errorf("%d lines for %d items", n, p.items)
	}
	return nil
}

// oneRun resumes, runs what is left, and says whether that was all.
func (p *plan) oneRun(luck *rand.Rand, peaceful bool) (all bool, err error) {
	j, err := work.OpenJournal(p.path, work.JournalConfig{Sync: p.sync})
	if err != nil {
		return false, err
	}
	defer j.Close()
	done := make(map[string]bool)
	for line, err := range j.Lines() {
		if err != nil {
			return false, err
		}
		id, _, _ := strings.Cut(string(line.Bytes), " ")
		if done[id] {
			return false, fmt.Errorf("item %s is recorded twice", id)
		}
		done[id] = true
	}
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: p.slots}})
	if err != nil {
		return false, err
	}
	defer s.Close()
	var left []work.Item
	for _, item := range numbered(p.items) {
		item.Lane, item.Ref = strconv.Itoa(int(item.Seq)%p.lanes), item.Seq
		if !done[item.ID] {
			left = append(left, item)
		}
	}
	cfg := work.Config{
		Journal: j, Encode: encode, Queue: p.queue, Workers: p.workers, Feed: feedOf(left...), Lanes: p.lanes,
		Handler: calls(s, p.attempt(done)),
	}
	if luck.IntN(2) == 0 {
		cfg.Reload = func(seq, ref int64) (work.Item, error) {
			return work.Item{ID: strconv.Itoa(int(seq)), Seq: seq, Ref: ref, Lane: strconv.Itoa(int(seq) % p.lanes)}, nil
		}
	}
	r, err := work.New(cfg)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if at := time.Duration(luck.IntN(20_000)) * time.Millisecond; !peaceful {
		end := r.Drain
		if luck.IntN(2) == 0 {
			end = cancel
		}
		defer time.AfterFunc(at, end).Stop()
	}
	rep, err := r.Run(ctx)
	if err != nil && !errors.Is(err, work.ErrDrained) && !errors.Is(err, context.Canceled) {
		return false, err
	}
	if err == nil && rep.Done+rep.Failed != len(left) {
		return false, fmt.Errorf("%d of %d were recorded, and no error", rep.Done+rep.Failed, len(left))
	}
	return err == nil, nil
}

// attempt fails in all ways that an item may.
func (p *plan) attempt(done map[string]bool) work.Attempt {
	return func(ctx context.Context, permit *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
		p.mu.Lock()
		p.seed++
		luck := rand.New(rand.NewPCG(p.seed, 2))
		p.mu.Unlock()
		if done[item.ID] {
			panic("an item that is recorded was called again")
		}
		select {
		case <-time.After(time.Duration(luck.IntN(3000)) * time.Millisecond):
		case <-ctx.Done():
			return work.Result{}, sluice.Outcome{Kind: sluice.Network, Err: ctx.Err()}
		}
		kinds := []sluice.Kind{sluice.Network, sluice.ServerError, sluice.Timeout, sluice.RateLimit, sluice.BadRequest, sluice.InvalidOutput,
			sluice.CommandFailed}
		if k := luck.IntN(20); k < len(kinds) {
			return work.Result{}, sluice.Outcome{Kind: kinds[k], Err: errors.New("x"), Wait: time.Second, Dimension: limits.Requests}
		}
		return work.Result{}, sluice.Outcome{}
	}
}

func TestIndexIsAMapOfIDs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const ids = 4000
		var x work.Index
		type entry struct {
			number int
			hash   work.Hash
		}
		model := make(map[string]entry)
		number, dense := -1, rapid.SampledFrom([]int{0, 1, 63, 64, 3000}).Draw(rt, "dense")
		luck := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 4))
		for range rapid.IntRange(0, 5000).Draw(rt, "n") {
			if number++; number >= dense {
				number += luck.IntN(3)
			}
			id := strconv.Itoa(luck.IntN(ids))
			hash := work.HashOf([]byte(id), []byte(strconv.Itoa(number)))
			was, known := model[id]
			other, ok := x.Add(number, []byte(id), hash)
			if ok == known || known && other != was.number {
				rt.Fatalf("Add(%d, %s) = %d, %t; the model has %v, %t", number, id, other, ok, was, known)
			}
			if !known {
				model[id] = entry{number, hash}
			}
		}
		for id := range ids {
			was, known := model[strconv.Itoa(id)]
			n, ok := x.Find([]byte(strconv.Itoa(id)))
			if ok != known || ok && (n != was.number || !x.Same(n, was.hash) || x.Same(n, work.Hash{})) {
				rt.Fatalf("Find(%d) = %d, %t; the model has %v, %t", id, n, ok, was, known)
			}
		}
	})
}

func TestIndexTakesAtMost24BytesAnItem(t *testing.T) {
	var before, after runtime.MemStats
	for _, c := range []struct {
		n, apart int
		most     float64
	}{{250_000, 1, 24}, {400_000, 1, 24}, {400_000, 10, 27}} { // apart, as records of ten lines are
		n := c.n
		runtime.GC()
		runtime.ReadMemStats(&before)
		var x work.Index
		var id []byte
		for i := range n {
			id = strconv.AppendInt(id[:0], int64(i), 10)
			if _, ok := x.Add(i*c.apart, id, work.Hash{}); !ok {
				t.Fatalf("%s was taken for another", id)
			}
			x.Done().Set(i * c.apart)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if each := float64(int64(after.HeapAlloc-before.HeapAlloc)) / float64(n); each > c.most {
			t.Errorf("%d items, %d apart: %.1f bytes each, want at most %v", n, c.apart, each, c.most)
		}
		runtime.KeepAlive(&x)
	}
}

func TestLineReaderSplitsLikeBytesSplit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var text []byte
		for range rapid.IntRange(0, 10).Draw(rt, "pieces") {
			text = append(text, bytes.Repeat([]byte("x"), rapid.SampledFrom([]int{0, 1, 7, 300_000, 700_000}).Draw(rt, "length"))...)
			text = append(text, "\r\n"[rapid.IntRange(0, 1).Draw(rt, "end"):]...)
		}
		if rapid.Bool().Draw(rt, "torn") {
			text = append(text, "end"...)
		}
		const limit = 500_000
		r := work.NewLineReader(iotest.HalfReader(bytes.NewReader(text)), limit)
		rest := text
		for number := 1; ; number++ {
			line, err := r.Next()
			if err == io.EOF {
				if len(rest) > 0 {
					rt.Fatalf("ended %d bytes early", len(rest))
				}
				return
			}
			want, after, whole := bytes.Cut(rest, []byte("\n"))
			tooLong, long := errors.AsType[*work.TooLongError](err)
			switch {
			case len(want) > limit:
				if !long || tooLong.Line != number {
					rt.Fatalf("line %d of %d bytes: error %v", number, len(want), err)
				}
			case err != nil:
				rt.Fatal(err)
			case !bytes.Equal(line.Bytes, want) || line.Torn == whole:
				rt.Fatalf("line %d has %d bytes (torn %t), want %d", number, len(line.Bytes), line.Torn, len(want))
			}
			if line.Number != number || int(line.Offset) != len(text)-len(rest) {
				rt.Fatalf("line %d at %d: want %d at %d", line.Number, line.Offset, number, len(text)-len(rest))
			}
			rest = after
		}
	})
}

func TestHashHasAText(t *testing.T) {
	h := work.HashOf([]byte("a"), []byte("b"))
	if h != work.HashOf([]byte("ab")) {
		t.Error("the same text has two hashes")
	}
	back, err := work.ParseHash([]byte(h.String()))
	if err != nil || back != h {
		t.Errorf("%v was read as %v: %v", h, back, err)
	}
	for _, bad := range []string{"", "00", strings.Repeat("g", 32)} {
		if _, err := work.ParseHash([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
