package batch_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/batch"
)

func TestAJSONArrayIsReadAsItems(t *testing.T) {
	items := []string{`{"custom_id":"a","prompt":"one"}`, "{\n  \"custom_id\": \"b\",\n  \"prompt\": \"two\"\n}", `{"prompt":"three"}`, `"four"`}
	pretty := "[\n" + strings.Join(items, ",\n") + "\n]\n"
	f, rt := newFiles(t, pretty), &stub{}
	cfg := f.config(t, rt)
	cfg.Model = "m"
	cfg.Limit = 2
	check := func(what string, already, done, sent int) {
		t.Helper()
		if rep, err := run(t, cfg); err != nil || rep.Already != already || rep.Done != done || rt.count() != sent {
			t.Fatalf("%s: already %d, done %d, sent %d, error %v; want %d, %d, %d", what, rep.Already, rep.Done, rt.count(), err, already, done, sent)
		}
	}
	check("the first two items", 0, 2, 2)
	cfg.Limit = 0
	check("the other items", 2, 2, 4)
	f.input(t, strings.ReplaceAll(pretty, "\n", ""))
	check("the same array on one line", 4, 0, 4)
	cfg.Input, cfg.Stdin = "-", strings.NewReader(pretty)
	check("from standard input", 4, 0, 4)
	cfg.Input = f.in
	f.input(t, strings.ReplaceAll(pretty, "three", "3"))
	if _, err := run(t, cfg); err == nil || !strings.Contains(err.Error(), f.in+` item 3: item "3" differs`) {
		t.Errorf("an item that changed: error %v", err)
	}
	for _, id := range []string{"a", "b", "3", "4"} {
		if _, ok := f.results(t)[id]; !ok {
			t.Errorf("no result of %s", id)
		}
	}
}

func TestABadItemOfAnArrayIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"[{\"prompt\":\"x\"},\n\n{\"prompt\":1}]":                                           " line 3, item 2: prompt is not a string",
		"[{\"custom_id\":\"a\",\"prompt\":\"x\"},\n{\"custom_id\":\"a\",\"prompt\":\"y\"}]": ` line 2, item 2: custom_id "a" is also in item 1`,
		"[{\"prompt\":\"x\"},\n5]":                                                          " line 2, item 2: 5 is neither an object nor a string",
		"[{\"prompt\":\"x\"},\n{\"prompt\":]":                                               " line 2, item 2: broken JSON",
	} {
		f, rt := newFiles(t, text), &stub{}
		cfg := f.config(t, rt)
		cfg.Model = "m"
		_, err := run(t, cfg)
		if _, ok := errors.AsType[*batch.InputError](err); !ok || err.Error() != f.in+want || rt.count() > 0 {
			t.Errorf("%q: error %v and %d requests, want %q", text, err, rt.count(), want)
		}
	}
}
