package pool_test

import (
	"os"
	"testing"

	"github.com/sluice-llm/sluice/pool"
)

// FuzzCheckpoint reads what a checkpoint's file might hold. What is read as one must be as it was saved: nothing else has its
// checksum.
func FuzzCheckpoint(f *testing.F) {
	dir := f.TempDir()
	s, err := pool.NewFileStore(dir)
	if err != nil {
		f.Fatal(err)
	}
	for id, data := range map[string]string{"m": `{"step":1}`, "ü\x00": "", "a\xff": "\n\n"} {
		s.Save(id, []byte(data))
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		b, _ := os.ReadFile(dir + "/" + e.Name())
		f.Add(b)
	}
	f.Add([]byte(`{"sluice_checkpoint":2}` + "\n"))
	f.Add([]byte(`{"sluice_checkpoint":1,"saved_at":"0000-00-00T00:00:00Z","size":-1}` + "\n"))
	f.Add([]byte("null\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, all []byte) {
		c, err := pool.Parse(all, "m")
		if err != nil {
			if c.Data != nil {
				t.Error("there is an error, and data")
			}
			return
		}
		for i := range all { // any other byte, and it is damaged
			all[i] ^= 4
			if _, err := pool.Parse(all, "m"); err == nil {
				t.Errorf("byte %d may be another", i)
			}
			all[i] ^= 4
		}
	})
}
