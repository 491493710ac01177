package provider

import (
	"strconv"
	"strings"
	"time"
)

// abbreviations are the short names of zones that people and programs write. Some are used for several zones (CST is
// also China's, IST also Ireland's and Israel's): they mean here what they mean in the messages of American providers.
var abbreviations = map[string]string{
	"utc": "UTC", "gmt": "UTC", "z": "UTC",
	"pt": "America/Los_Angeles", "pst": "America/Los_Angeles", "pdt": "America/Los_Angeles",
	"mt": "America/Denver", "mst": "America/Denver", "mdt": "America/Denver",
	"ct": "America/Chicago", "cst": "America/Chicago", "cdt": "America/Chicago",
	"et": "America/New_York", "est": "America/New_York", "edt": "America/New_York",
	"wet": "Europe/Lisbon", "west": "Europe/Lisbon", "bst": "Europe/London",
	"cet": "Europe/Berlin", "cest": "Europe/Berlin", "eet": "Europe/Athens", "eest": "Europe/Athens",
	"mez": "Europe/Berlin", "mesz": "Europe/Berlin", "msk": "Europe/Moscow",
	"ist": "Asia/Kolkata", "jst": "Asia/Tokyo", "kst": "Asia/Seoul", "sgt": "Asia/Singapore", "hkt": "Asia/Hong_Kong",
	"aest": "Australia/Sydney", "aedt": "Australia/Sydney", "nzst": "Pacific/Auckland", "nzdt": "Pacific/Auckland",
	"brt": "America/Sao_Paulo", "art": "America/Argentina/Buenos_Aires",
}

// legacy are old names of zones that not every system's database has. Pacific Time and its like are said in words.
var legacy = map[string]string{
	"us/pacific": "America/Los_Angeles", "us/mountain": "America/Denver", "us/central": "America/Chicago",
	"us/eastern": "America/New_York", "us/arizona": "America/Phoenix", "us/hawaii": "Pacific/Honolulu",
	"us/alaska": "America/Anchorage", "asia/calcutta": "Asia/Kolkata", "asia/saigon": "Asia/Ho_Chi_Minh",
	"asia/katmandu": "Asia/Kathmandu", "asia/rangoon": "Asia/Yangon", "europe/kiev": "Europe/Kyiv",
	"america/buenos_aires": "America/Argentina/Buenos_Aires", "pacific time": "America/Los_Angeles",
	"mountain time": "America/Denver", "central time": "America/Chicago", "eastern time": "America/New_York",
	"beijing time": "Asia/Shanghai", "北京时间": "Asia/Shanghai", "japan": "Asia/Tokyo", "singapore": "Asia/Singapore",
	"prc": "Asia/Shanghai", "rok": "Asia/Seoul", "turkey": "Europe/Istanbul", "israel": "Asia/Jerusalem",
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
	if full, ok := abbreviations[low]; ok {
		low, name = asciiLower(full), full
	}
	if full, ok := legacy[low]; ok {
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
