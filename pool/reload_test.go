package pool_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/pool"
)

// A load that comes beside a deletion and two saves finds the file missing and then a backup: nothing is damaged.
func TestALoadBesideSavesReportsNoDamage(t *testing.T) {
	s, err := pool.NewFileStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	quit := make(chan struct{})
	wg.Go(func() {
		defer close(quit)
		for range suite.Size(150, 400) {
			if err := errors.Join(s.Delete("m"), s.Save("m", []byte("1")), s.Save("m", []byte("2"))); err != nil {
				t.Error(err)
			}
		}
	})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
				}
				if c, err := s.Load("m"); err == nil && c.Damage != nil {
					t.Errorf("%s: %v", c.Data, c.Damage)
					return
				} else if err != nil && !errors.Is(err, pool.ErrNoCheckpoint) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
