package batch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
)

// TestALineThatComesWhileItsAnswerIsWritten comes too late to be written with it, and waits for it.
func TestALineThatComesWhileItsAnswerIsWritten(t *testing.T) {
	for name, good := range map[string]bool{"good": true, "failed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var a batch.Arrivals
				hash := work.HashOf([]byte("a"))
				_, twins := a.Join(1, hash)
				for range twins {
					t.Error("line 1 has a twin")
				}
				joined, _ := a.Join(2, hash)
				if joined {
					t.Error("line 2 joined what is closed")
				}
				var offset int64
				var ok bool
				var err error
				found := make(chan struct{})
				go func() {
					defer close(found)
					offset, ok, err = a.Find(context.Background(), 2, hash)
				}()
				synctest.Wait()
				select {
				case <-found:
					t.Error("line 2 did not wait for what is about to be recorded")
				default:
				}
				if joined, _ := a.Join(3, hash); !joined {
					t.Error("line 3 did not join line 2")
				}
				r := &work.Result{Seq: 1, Hash: hash, Offset: 7}
				if !good {
					r.Kind, r.Err = sluice.BadRequest, errors.New("no")
				}
				a.Told(r)
				<-found
				if err != nil || ok != good || good && offset != 7 {
					t.Errorf("found %d, %t, %v", offset, ok, err)
				}
			})
		})
	}
}
