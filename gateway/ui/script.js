"use strict";
const banner = document.getElementById("banner");
const show = text => { if (banner.textContent !== text) banner.textContent = text; };
const source = new EventSource("/ui/events");
source.onmessage = event => {
	const parts = JSON.parse(event.data);
	for (const id in parts) {
		if (id === "banner") show(parts.banner);
		else document.getElementById(id).innerHTML = parts[id]; // escaped by the gateway
	}
};
source.onerror = () => show("The gateway does not respond: these numbers are old.");
