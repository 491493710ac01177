package batch_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/suite"
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

// tree is a schema of operations within operations, of which every alternative is looked into at every level.
func tree() string {
	var kinds []string
	for i := range 6 {
		kinds = append(kinds, fmt.Sprintf(`{"type":"object","properties":{"op":{"const":"op%d"},"of":{"$ref":"#"}}}`, i))
	}
	return `{"oneOf":[{"type":"number"},` + strings.Join(kinds, ",") + `]}`
}

func TestAnAnswerThatTakesForEverToCheckIsRefused(t *testing.T) {
	defs := `{"$ref":"#/$defs/a0","$defs":{`
	for i := range 40 {
		defs += fmt.Sprintf(`"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	defs += `"a40":{"type":"string"}}}`
	deep := func(n int) string { return strings.Repeat(`{"op":"op3","of":`, n) + "1" + strings.Repeat("}", n) }
	for name, c := range map[string]struct{ schema, answer string }{
		"a tree":                  {tree(), deep(40)},
		"definitions that double": {defs, `"x"`},
		"an older draft": {`{"$schema":"http://json-schema.org/draft-07/schema#","anyOf":[{"type":"array","items":{"$ref":"#"}},{"type":"array","items":{"$ref":"#"}},{"type":"null"}]}`,
			strings.Repeat("[", 60) + "1" + strings.Repeat("]", 60)},
		"none of any": {`{"type":"array","anyOf":[{"items":{"$ref":"#"}},{"items":{"$ref":"#"}}]}`,
			strings.Repeat("[", 60) + "1" + strings.Repeat("]", 60)},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "an older draft" || name == "none of any" {
				suite.FullOnly(t)
			}
			s := schema(t, c.schema)
			within(t, func() {
				var wg sync.WaitGroup
				for range suite.Size(1, 2) {
					wg.Go(func() {
						if err := s.Check(c.answer); err == nil || !strings.Contains(err.Error(), "too long to check") {
							t.Errorf("%.200v", err)
						}
					})
				}
				wg.Wait()
			})
		})
	}
	if err := schema(t, tree()).Check(deep(2)); err != nil {
		t.Errorf("a small tree: %v", err)
	}
	long := "[" + strings.Repeat("1,", 100_000) + "1]"
	if err := schema(t, `{"items":{"anyOf":[{"type":"string"},{"type":"null"},{"type":"number"}]}}`).Check(long); err != nil {
		t.Errorf("a long answer: %v", err)
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
