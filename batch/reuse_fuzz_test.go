package batch_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-llm/sluice/batch"
)

// FuzzCopied looks for recorded lines that make no whole line for another item, or one that says something else.
func FuzzCopied(f *testing.F) {
	f.Add([]byte(`{"id":"batch_req_1","custom_id":"a","response":{"status_code":200,"request_id":"r","body":{"x":[1]}},"error":null,"sluice":{"input":"00112233445566778899aabbccddeeff","kind":"ok"}}`))
	f.Add([]byte(`{"custom_id":"a","response":null,"error":{"code":"bad_request"},"sluice":{"input":"00112233445566778899aabbccddeeff"}}`))
	f.Add([]byte(`{"custom_id":"a","response":{"status_code":400,"body":{}},"error":{"code":"bad_request"},"sluice":{"input":"00112233445566778899aabbccddeeff"}}`))
	f.Add([]byte(`{"custom_id":"\ud800","response":{"body":"\u0000"},"error":null,"sluice":{"input":"00112233445566778899aabbccddeeff"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		copied, ok := batch.Copied(line)
		if !ok {
			return
		}
		var was, is result
		if err := json.Unmarshal(copied, &is); err != nil || bytes.Count(copied, []byte("\n")) != 1 {
			t.Fatalf("%q makes %q: %v", line, copied, err)
		}
		if id, err := batch.RecordedID(line); err != nil || is.Sluice.Twin == "" || is.CustomID != "copy of "+id {
			t.Errorf("%q of %q makes %+v: %v", id, line, is, err)
		}
		if err := json.Unmarshal(line, &was); err == nil && was.Error != nil {
			t.Errorf("a failure was copied: %q", line)
		}
	})
}

// FuzzEntry looks for entries of a cache that are taken for whole and are not what was written.
func FuzzEntry(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "cache")
	files := newFiles(f, chats(1))
	cfg := files.config(f, &stub{})
	cfg.Cache = dir
	if _, err := run(f, cfg); err != nil {
		f.Fatal(err)
	}
	found, _ := filepath.Glob(filepath.Join(dir, "??", "*"))
	whole, err := os.ReadFile(found[0])
	if err != nil {
		f.Fatal(err)
	}
	if body, ok := batch.ParseEntry(whole); !ok || string(body) != chatAnswer {
		f.Fatalf("the entry holds %q, %t", body, ok)
	}
	f.Add(whole, 0, byte(0))
	f.Add([]byte("sluice-answer 1 \n\n"), 3, byte(1))
	f.Fuzz(func(t *testing.T, b []byte, at int, flip byte) {
		batch.ParseEntry(b) // must not panic
		spoilt := bytes.Clone(whole)
		spoilt[uint(at)%uint(len(spoilt))] ^= flip
		if _, ok := batch.ParseEntry(spoilt); ok != (flip == 0) {
			t.Errorf("byte %d changed by %#x: whole %t", at, flip, ok)
		}
	})
}
