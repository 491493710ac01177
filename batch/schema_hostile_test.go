package batch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/batch"
)

// within fails the test if do takes longer than anybody waits.
func within(t *testing.T, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("it does not end")
	}
}

func TestADeepSchemaIsRefused(t *testing.T) {
	within(t, func() {
		doc := strings.Repeat(`{"items":`, 9000) + "{}" + strings.Repeat("}", 9000)
		if _, err := batch.ParseSchema([]byte(doc)); err == nil || !strings.Contains(err.Error(), "nested") {
			t.Errorf("%.200v", err)
		}
		doc = strings.Repeat(`{"items":`, 250) + "{}" + strings.Repeat("}", 250)
		if _, err := batch.ParseSchema([]byte(doc)); err != nil {
			t.Errorf("%.200v", err)
		}
	})
}
