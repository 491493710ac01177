package provider

import (
	"strconv"
	"strings"
	"time"
)

// abbreviated returns the zone of a short name that people and programs write. Some are used for several zones (CST is
// also China's, IST also Ireland's and Israel's): they mean here what they mean in the messages of American providers.
func abbreviated(low string) (string, bool) {
	switch low {
	case "utc", "gmt", "z":
		return "UTC", true
	case "pt", "pst", "pdt":
		return "America/Los_Angeles", true
	case "mt", "mst", "mdt":
		return "America/Denver", true
	case "ct", "cst", "cdt":
		return "America/Chicago", true
	case "et", "est", "edt":
		return "America/New_York", true
	case "wet", "west":
		return "Europe/Lisbon", true
	case "bst":
		return "Europe/London", true
	case "cet", "cest", "mez", "mesz":
		return "Europe/Berlin", true
	case "eet", "eest":
		return "Europe/Athens", true
	case "msk":
		return "Europe/Moscow", true
	case "ist":
		return "Asia/Kolkata", true
	case "jst":
		return "Asia/Tokyo", true
	case "kst":
		return "Asia/Seoul", true
	case "sgt":
		return "Asia/Singapore", true
	case "hkt":
		return "Asia/Hong_Kong", true
	case "aest", "aedt":
		return "Australia/Sydney", true
	case "nzst", "nzdt":
		return "Pacific/Auckland", true
	case "brt":
		return "America/Sao_Paulo", true
	case "art":
		return "America/Argentina/Buenos_Aires", true
	}
	return "", false
}

// legacy returns the zone of an old name that not every system's database has. Pacific Time and its like are said in words.
func legacy(low string) (string, bool) {
	switch low {
	case "us/pacific", "pacific time":
		return "America/Los_Angeles", true
	case "us/mountain", "mountain time":
		return "America/Denver", true
	case "us/central", "central time":
		return "America/Chicago", true
	case "us/eastern", "eastern time":
		return "America/New_York", true
	case "us/arizona":
		return "America/Phoenix", true
	case "us/hawaii":
		return "Pacific/Honolulu", true
	case "us/alaska":
		return "America/Anchorage", true
	case "asia/calcutta":
		return "Asia/Kolkata", true
	case "asia/saigon":
		return "Asia/Ho_Chi_Minh", true
	case "asia/katmandu":
		return "Asia/Kathmandu", true
	case "asia/rangoon":
		return "Asia/Yangon", true
	case "europe/kiev":
		return "Europe/Kyiv", true
	case "america/buenos_aires":
		return "America/Argentina/Buenos_Aires", true
	case "beijing time", "北京时间", "prc":
		return "Asia/Shanghai", true
	case "japan":
		return "Asia/Tokyo", true
	case "singapore":
		return "Asia/Singapore", true
	case "rok":
		return "Asia/Seoul", true
	case "turkey":
		return "Europe/Istanbul", true
	case "israel":
		return "Asia/Jerusalem", true
	}
	return "", false
}

// maxZone is longer than every name of a zone.
const maxZone = 48

// zone reads the name of a time zone: one of the database, in any case, an old name, an abbreviation, or an offset
// ("GMT+2", "UTC-03:30", "+0200", "Z").
func zone(name string) (*time.Location, bool) {
	name = strings.TrimSpace(name)
	if name == "" || len(name) > maxZone {
		return nil, false
	}
	low := asciiLower(name)
	if full, ok := abbreviated(low); ok {
		low, name = asciiLower(full), full
	}
	if full, ok := legacy(low); ok {
		name = full
	}
	if name == "UTC" {
		return time.UTC, true
	}
	if at, ok := offset(low); ok {
		return at, true
	}
	if !strings.ContainsRune(name, '/') {
		return nil, false // "Local", "Factory" and the like are no zones that a message names
	}
	for _, try := range [...]string{name, titled(low)} {
		if at, err := time.LoadLocation(try); err == nil {
			return at, true
		}
	}
	return nil, false
}

// offset reads an offset from UTC in hours, with or without minutes. Etc/GMT+5 lies west of Greenwich, GMT+5 east.
func offset(low string) (*time.Location, bool) {
	if strings.HasPrefix(low, "etc/") {
		return nil, false
	}
	s := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(low, "utc"), "gmt"), " ")
	if len(s) < 2 || s[0] != '+' && s[0] != '-' {
		return nil, false
	}
	hours, minutes, colon := strings.Cut(s[1:], ":")
	if !colon && len(hours) == 4 {
		hours, minutes = hours[:2], hours[2:]
	}
	h, err := strconv.ParseUint(hours, 10, 8)
	m, err2 := strconv.ParseUint("0"+minutes, 10, 8)
	if err != nil || err2 != nil || h > 14 || m > 59 {
		return nil, false
	}
	east := int(h)*3600 + int(m)*60
	if s[0] == '-' {
		east = -east
	}
	return time.FixedZone("", east), true
}

// titled writes a zone's name as the database does: "america/los_angeles" as America/Los_Angeles.
func titled(low string) string {
	b := []byte(low)
	start := true
	for i, c := range b {
		if start && c >= 'a' && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
		start = c == '/' || c == '_' || c == '-'
	}
	s := string(b)
	return strings.NewReplacer("_Of_", "_of_", "_Es_", "_es_", "-Au-", "-au-", "Gmt", "GMT", "Utc", "UTC").Replace(s)
}

// asciiLower returns s with ASCII letters in lower case, so that every byte keeps its place.
func asciiLower(s string) string {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if b[i] >= 'A' && b[i] <= 'Z' {
					b[i] |= 0x20
				}
			}
			return string(b)
		}
	}
	return s
}
