package parts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/parts"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
)

// left returns a bench whose only part waits at the provider, or, if it is not submitted, here.
func left(t *testing.T, submitted bool) *bench {
	b := newBench(t)
	d := b.open()
	if submitted {
		d.Start(context.Background())
	}
	b.add(d, 0, 5)
	if submitted {
		<-time.After(time.Minute)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

// file is the file of a kind.
func (b *bench) file(kind string) string {
	b.t.Helper()
	names, err := filepath.Glob(filepath.Join(b.dir, "*."+kind+".jsonl"))
	if err != nil || len(names) != 1 {
		b.t.Fatalf("files of %s are %q, err %v", kind, names, err)
	}
	return names[0]
}

func (b *bench) cutFile(kind string, bytes int64) {
	b.t.Helper()
	info, err := os.Stat(b.file(kind))
	if err == nil {
		err = os.Truncate(b.file(kind), info.Size()-bytes)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func TestDamagedFilesAreNamed(t *testing.T) {
	for _, test := range []struct {
		name      string
		submitted bool
		damage    func(*bench)
		want      string
	}{
		{"no members", true, func(b *bench) { os.Remove(b.file("members")) }, "are missing"},
		{"members cut in a line", true, func(b *bench) { b.cutFile("members", 3) }, "members.jsonl is damaged"},
		{"members cut", true, func(b *bench) { os.Truncate(b.file("members"), 0) }, "members.jsonl is damaged"},
		{"requests cut", false, func(b *bench) { b.cutFile("requests", 3) }, "requests.jsonl is damaged"},
		{"other members", true, func(b *bench) { os.WriteFile(b.file("members"), []byte("[]\n"), 0o600) }, "members.jsonl is damaged"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := left(t, test.submitted)
				test.damage(b)
				d, err := b.tryOpen()
				if err == nil {
					defer d.Close()
					d.Start(context.Background())
					err = b.merge(d)
				}
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("err = %v, want %q in it", err, test.want)
				}
				if len(b.got) > 0 || len(b.api.batches) > 1 {
					t.Errorf("results %v of %d batches", b.got, len(b.api.batches))
				}
			})
		})
	}
}

func TestFilesThatNoEntrySpeaksOfAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := left(t, true)
		stray := filepath.Join(b.dir, "0123456789ab.requests.jsonl")
		users := filepath.Join(b.dir, "notes.txt")
		for _, name := range []string{stray, users} {
			if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.open().Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(stray); !os.IsNotExist(err) {
			t.Errorf("a file without an entry stays: %v", err)
		}
		if _, err := os.Stat(users); err != nil {
			t.Errorf("a file of the user's is gone: %v", err)
		}
		b.file("requests")
		info, err := os.Stat(b.file("members"))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the members are %v, err %v, want mode 0600", info.Mode(), err)
		}
	})
}

func TestWhatWasSavedByNobodyIsRefused(t *testing.T) {
	good := `{"account":"acme","tag":"0123456789ab","endpoint":"/v1/chat/completions","state":"waiting","requests":1}`
	for _, test := range []struct{ name, saved, want string }{
		{"no object", `[]`, "saved parts"},
		{"cut", `{"version":1,"parts":[` + good, "saved parts"},
		{"more", `{"version":1,"parts":[]} {}`, "unexpected data follows"},
		{"newer", `{"version":2,"parts":[{"shape":"round"}]}`, "another version"},
		{"unknown member", `{"version":1,"parts":[` + strings.Replace(good, "{", `{"shape":1,`, 1) + `]}`, "shape"},
		{"a path", `{"version":1,"parts":[` + strings.Replace(good, "0123456789ab", "../../../etc", 1) + `]}`, "hexadecimal"},
		{"twice", `{"version":1,"parts":[` + good + "," + good + `]}`, "twice"},
		{"unknown state", `{"version":1,"parts":[` + strings.Replace(good, "waiting", "dreaming", 1) + `]}`, "dreaming"},
		{"no batch", `{"version":1,"parts":[` + strings.Replace(good, "waiting", "completed", 1) + `]}`, "no batch"},
		{"no requests", `{"version":1,"parts":[` + strings.Replace(good, `:1}`, `:-1}`, 1) + `]}`, "number"},
		{"unknown endpoint", `{"version":1,"parts":[` + strings.Replace(good, `/v1/chat`, `/v9/chat`, 1) + `]}`, "unknown"},
		{"unknown account", `{"version":1,"parts":[` + strings.Replace(good, `acme`, `other`, 1) + `]}`, "other"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			b.saved = []byte(test.saved)
			if _, err := b.tryOpen(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("err = %v, want %q in it", err, test.want)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"version":1,"parts":[{"account":"a","tag":"0123456789ab","endpoint":"/v1/messages","state":"waiting","requests":1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := parts.Read(text)
		for _, s := range all {
			if err != nil || len(s.Tag) != 12 || strings.ContainsAny(s.Tag, `./\`) || s.Requests <= 0 {
				t.Errorf("%q gives %+v, err %v", text, s, err)
			}
		}
	})
}

// TestALargePartTakesLittleMemory has a part of 100,000 members filled, and its results read, in 20 MB.
func TestALargePartTakesLittleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := suite.Size(20_000, 100_000)
		b := newBench(t)
		d := b.open()
		defer d.Close()
		d.Start(context.Background())
		r := requestOf(1)
		before := heap()
		for i := range members {
			id := fmt.Sprintf("a-rather-long-name-of-a-member-%d", i)
			m := parts.Member{ID: id, Hash: work.HashOf([]byte(id)), Tokens: 10}
			if _, err := d.Add("acme", m, r); err != nil {
				t.Fatal(err)
			}
		}
		if grown := heap() - before; grown > 1<<20 {
			t.Errorf("a part that is filled takes %d bytes", grown)
		}
		if err := d.Flush(); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Hour)
		p := d.Ready()
		if p == nil {
			t.Fatalf("no part is ready: %+v, %v", d.Status(), d.Err())
		}
		before = heap()
		n, most := 0, int64(0)
		for _, err := range p.Results() {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n%(members/4) == 0 {
				most = max(most, heap()-before)
			}
		}
		if n != members || most > int64(members)*200 {
			t.Errorf("%d results were read in %d bytes", n, most)
		}
		t.Logf("reading %d results takes %d KB", n, most>>10)
	})
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestReadGivesWhatStatusSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d := b.open()
		defer d.Close()
		d.Start(context.Background())
		b.add(d, 0, 5)
		<-time.After(time.Minute)
		read, err := parts.Read(b.saved)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(d.Status())
		if got, _ := json.Marshal(read); string(got) != string(want) {
			t.Errorf("Read gives %s, Status %s", got, want)
		}
	})
}
