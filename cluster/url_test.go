package cluster_test

import (
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/cluster"
)

func TestURLsAreReadAsTheirCommentSays(t *testing.T) {
	for _, test := range []struct {
		url, shown string
		near       bool
	}{
		{"redis://localhost", "redis://localhost:6379", true},
		{"redis://127.0.0.1:7000/3", "redis://127.0.0.1:7000/3", true},
		{"redis://[::1]", "redis://[::1]:6379", true},
		{"valkey://10.0.0.5", "redis://10.0.0.5:6379", false},
		{"valkeys://10.0.0.5", "rediss://10.0.0.5:6379", false},
		{"redis://:hunter2@db.example.com", "redis://db.example.com:6379", false},
		{"rediss://sluice:hunter2@db.example.com:6380/1?ca_file=ca.pem&server_name=db", "rediss://sluice@db.example.com:6380/1", false},
		{"redis://sluice@a:7001?addr=b:7002&addr=c", "redis://sluice@a:7001,b:7002,c:6379", false},
		{"redis://a?addr=b&master_set=main", "redis://a:26379,b:26379", false},
		{"redis://127.0.0.1?addr=b", "redis://127.0.0.1:6379,b:6379", false},
		{"unix:///run/redis.sock?db=2", "unix:///run/redis.sock", true},
		{"unix://sluice:hunter2@/run/redis.sock", "unix://sluice@/run/redis.sock", true},
	} {
		shown, near, err := cluster.Near(test.url)
		if err != nil || shown != test.shown || near != test.near {
			t.Errorf("%s is %s, near %v, %v; want %s, %v", test.url, shown, near, err, test.shown, test.near)
		}
	}
}

func TestAWrongURLIsRefusedWithoutItsPassword(t *testing.T) {
	for _, test := range []struct{ url, want string }{
		{"", "does not begin with redis://"},
		{"localhost:6379", " invalid"},
		{"sluice:hunter2@host", " invalid"},
		{"http://sluice:hunter2@host", "does not begin with redis://"},
		{"redis://", "not host:port"},
		{"redis://:hunter2@", "not host:port"},
		{"redis://sluice:hunter2/x@host", " invalid"},
		{"redis://sluice:hunter2#@host", " invalid"},
		{"redis://sluice:hunter2%@host", " invalid"},
		{"redis://sluice:1?hunter2@host", " invalid"},
		{"redis://sluice:1/hunter2@host", "not a database number"},
		{"redis://host:0", "not host:port"},
		{"redis://host:70000", "not host:port"},
		{"redis://host/1/2", "not a database number"},
		{"redis://host/-1", "not a database number"},
		{"redis://host?db=1", `has the unknown option "db"`},
		{"redis://host?addr=", "not host:port"},
		{"redis://host?addr=u:hunter2@b", " invalid"},
		{"redis://host?master=main", `has the unknown option "master"`},
		{"redis://host?zz=1&master_set=a&yy=1&xx=1&ca_file=x&ww=1&vv=1", "ca_file is an option for TLS"}, // the first by name
		{"redis://host?master_set=a&master_set=b", "contains the option master_set twice"},
		{"redis://host?sentinel_user=a", "sentinel_user is set, but master_set is missing"},
		{"redis://host?ca_file=x", "ca_file is an option for TLS"},
		{"redis://host?insecure=true", "insecure is an option for TLS"},
		{"rediss://host?insecure=perhaps", "insecure must be true or false"},
		{"rediss://host?cert_file=x", "only one of cert_file and key_file is set"},
		{"rediss://host?ca_file=/nowhere/ca.pem", "ca_file: open /nowhere/ca.pem"},
		{"rediss://host?cert_file=/nowhere/c&key_file=/nowhere/k", "cert_file and key_file: open /nowhere/c"},
		{"unix://host/run/redis.sock", "may contain only the path of a socket"},
		{"unix:///run/redis.sock?db=x", "not a database number"},
	} {
		text, hint, settings := refused(t, cluster.Config{URL: test.url})
		if !strings.Contains(text, test.want) || hint == "" || !settings {
			t.Errorf("%s: %s (hint: %s, settings %v), want %q", test.url, text, hint, settings, test.want)
		}
		if strings.Contains(text+hint, "hunter2") {
			t.Errorf("%s: the password is in %q", test.url, text+hint)
		}
	}
}

func TestAPasswordIsTakenOutOfAnyText(t *testing.T) {
	for text, want := range map[string]string{
		"redis://host":                       "redis://host",
		"redis://sluice@host":                "redis://sluice@host",
		"redis://sluice:pa:ss@host/1?addr=b": "redis://sluice:***@host/1?addr=b",
		"redis://:p@ss/w#rd@host":            "redis://:***@host",
		"sluice:secret@host":                 "***@host",
		"rediss:/sluice:secret@host":         "***@host",
		"":                                   "",
	} {
		if got := cluster.Redact(text); got != want {
			t.Errorf("Redact(%q) = %q, want %q", text, got, want)
		}
	}
}

func FuzzNoURLTellsItsPassword(f *testing.F) {
	f.Add("redis://sluice:", "@host:6379/0?addr=b")
	f.Add("redis://", "@host")
	f.Add("rediss://u:x", "/y@host")
	f.Add("unix://u:", "@/run/x.sock")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "Zq8WpXv7"
		if strings.Contains(before, "?") { // what stands behind it is an option's name, which is said
			return
		}
		url := before + secret + after
		shown, _, err := cluster.Near(url)
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Fatalf("%q: %v", url, err)
		}
		if err == nil && cluster.Password(url) != "" && strings.Contains(cluster.Password(url), secret) && strings.Contains(shown, secret) {
			t.Fatalf("%q is shown as %q", url, shown)
		}
	})
}
