package parts_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
)

func TestFilesAreDeletedAtTheProviderOnceTheirAnswersAreRecorded(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("by another process ", again), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.remove, b.terms.Requests = true, 2
				d := b.open()
				d.Start(context.Background())
				b.add(d, 0, 4)
				<-time.After(2 * time.Hour)
				synctest.Wait()
				if len(b.api.removed) != 0 {
					t.Fatalf("%q were removed before their answers are recorded", b.api.removed)
				}
				if again {
					d.Close()
					d = b.open()
					d.Start(context.Background())
				}
				if err := b.merge(d); err != nil {
					t.Fatal(err)
				}
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				slices.Sort(b.api.removed)
				if want := []string{"file-1", "file-2", "results-batch-1", "results-batch-2"}; !slices.Equal(b.api.removed, want) {
					t.Errorf("removed are %q, want %q", b.api.removed, want)
				}
				b.want(4)
			})
		})
	}
}

func TestFilesThatCannotBeDeletedAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		log := &warnings{}
		b.remove, b.log = true, slog.New(log)
		b.api.fails = func(op string) error {
			if op == "remove" {
				return saying(sluice.ServerError, "503")
			}
			return nil
		}
		d := b.open()
		d.Start(context.Background())
		b.add(d, 0, 5)
		if err := b.merge(d); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("Close waited for %v", took)
		}
		b.want(5)
		all := strings.Join(log.all(), "\n")
		if !strings.Contains(all, "file-1") || !strings.Contains(all, "results-batch-1") {
			t.Errorf("the warning names no ids: %q", all)
		}
		if left, _ := filepath.Glob(filepath.Join(b.dir, "*")); len(left) > 0 {
			t.Errorf("files are left: %q", left)
		}
	})
}

func TestNothingIsDeletedAtTheProviderUnlessItIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		if err := through(b, 5); err != nil {
			t.Fatal(err)
		}
		if len(b.api.removed) > 0 {
			t.Errorf("%q were removed", b.api.removed)
		}
	})
}
