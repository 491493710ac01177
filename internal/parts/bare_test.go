package parts_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/parts"
)

// stripped returns a bench with two parts of five members at the provider, the members of the first of which are gone: put puts
// them back.
func stripped(t *testing.T) (b *bench, tag string, put func()) {
	b = newBench(t)
	b.api.bounds.Requests = 5
	d := b.open()
	d.Start(context.Background())
	b.add(d, 0, 10)
	<-time.After(time.Minute)
	tag = d.Status()[0].Tag
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(b.dir, tag+".members.jsonl")
	text, err := os.ReadFile(name)
	if err == nil {
		err = os.Remove(name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b, tag, func() {
		if err := errors.Join(os.MkdirAll(b.dir, 0o700), os.WriteFile(name, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAPartWithoutItsMembersIsLostUntilTheyArePutBackAndTheOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, tag, put := stripped(t)
		for range 2 {
			d := b.open()
			if !d.Bare() {
				t.Error("all members are said to be known")
			}
			batch := d.Status()[0].Batch // of two parts, either may have been made first
			d.Start(context.Background())
			err := b.merge(d)
			lost, ok := errors.AsType[*parts.LostError](err)
			if !ok || len(lost.Parts) != 0 || len(lost.Bare) != 1 || lost.Bare[0].Tag != tag || lost.Bare[0].Batch != batch || batch == "" ||
				!strings.Contains(err.Error(), b.dir) {
				t.Fatalf("err = %v, want that %s is lost", err, tag)
			}
			d.Close()
		}
		if b.api.creates != 2 || b.api.cancels != 0 || len(b.got) != 5 {
			t.Fatalf("%d batches, %d cancelled, %d results; want 2, 0, 5", b.api.creates, b.api.cancels, len(b.got))
		}
		put()
		d := b.open()
		d.Start(context.Background())
		if err := b.merge(d); err != nil {
			t.Fatal(err)
		}
		d.Close()
		b.want(10)
	})
}

func TestAPartWithoutItsMembersIsGivenUpByWhoWantsItAnew(t *testing.T) {
	for _, off := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b, tag, _ := stripped(t)
			b.again = true
			d := b.open()
			if d.Bare() {
				t.Error("what is to be given up is said to hold others back")
			}
			for m := range d.Members() {
				if slices.Contains([]string{"m0", "m1", "m2", "m3", "m4"}, m.ID) {
					t.Errorf("member %s is said to be in a part", m.ID)
				}
			}
			if off {
				if err := d.Cancel(); err != nil {
					t.Fatal(err)
				}
			}
			d.Start(context.Background())
			if err := b.merge(d); err != nil {
				t.Fatal(err)
			}
			first := d.Status()[0]
			d.Close()
			want := 1
			if off {
				want = 2 // the other one, too
			}
			if first.Tag != tag || first.State != parts.Dropped || b.api.creates != 2 || b.api.cancels != want {
				t.Errorf("the part is %+v, of %d batches %d were cancelled, want %d", first, b.api.creates, b.api.cancels, want)
			}
		})
	}
}

func TestAPartOfWhichNothingRanIsDroppedWithItsFiles(t *testing.T) {
	for _, kind := range []string{"requests", "members"} {
		synctest.Test(t, func(t *testing.T) {
			b := left(t, false)
			if err := os.Remove(b.file(kind)); err != nil {
				t.Fatal(err)
			}
			d := b.open()
			for m := range d.Members() {
				t.Errorf("member %s is said to be in a part", m.ID)
			}
			d.Start(context.Background())
			if err := b.merge(d); err != nil || d.Bare() || d.Status()[0].State != parts.Dropped {
				t.Errorf("err = %v, parts %+v", err, d.Status())
			}
			d.Close()
			if b.api.creates != 0 {
				t.Errorf("it was submitted %d times", b.api.creates)
			}
			b.want(0)
		})
	}
}

func TestResultsWhoseFileIsGoneAreFetchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := left(t, true)
		d := b.open()
		d.Start(context.Background())
		for d.Status()[0].State != parts.Fetched {
			<-d.Changed()
		}
		d.Close()
		if err := os.Remove(filepath.Join(b.dir, d.Status()[0].Tag+".results.0.jsonl")); err != nil {
			t.Fatal(err)
		}
		d = b.open()
		d.Start(context.Background())
		if err := b.merge(d); err != nil {
			t.Fatal(err)
		}
		d.Close()
		b.want(5)
	})
}
