// What htmx leaves to do: when to look again, times that go on, dialogs, copying.
"use strict";

(() => {
  const SECOND = 1000;
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  const serverNow = Number(document.documentElement.dataset.now || Date.now());
  const behind = serverNow - Date.now();
  const looked = new Map();
  const offline = document.getElementById("offline");

  // In the words of batchjobs/api/page/words.py, by the server's clock.
  const relative = (moment) => {
    const seconds = (moment - Date.now() - behind) / SECOND;
    for (const [size, unit] of UNITS) {
      if (Math.abs(seconds) >= size) {
        const count = Math.floor(Math.abs(seconds) / size);
        return seconds > 0 ? `in ${count} ${unit}` : `${count} ${unit} ago`;
      }
    }
    return "now";
  };

  const write = (element, name, text) => {
    if (element[name] !== text) element[name] = text;
  };

  const tellTimes = () => {
    for (const element of document.querySelectorAll("time[datetime]:not([data-local])")) {
      const moment = new Date(element.dateTime);
      write(element, "textContent", relative(moment));
      write(element, "title", EXACT.format(moment));
    }
  };

  const lookAgain = () => {
    for (const element of document.querySelectorAll("[data-every]")) {
      const now = performance.now();
      const last = looked.get(element.id) ?? now;
      looked.set(element.id, last);
      if (now - last >= element.dataset.every * SECOND - SECOND / 2) {
        looked.set(element.id, now);
        element.dispatchEvent(new CustomEvent("refresh"));
      }
    }
  };

  setInterval(() => {
    if (document.hidden) return;
    tellTimes();
    lookAgain();
  }, SECOND);

  document.addEventListener("htmx:after:swap", () => {
    offline.hidden = true;
    tellTimes();
  });
  for (const failure of ["htmx:error", "htmx:response:error"]) {
    document.addEventListener(failure, () => { offline.hidden = false; });
  }

  document.addEventListener("click", async (event) => {
    const target = event.target.closest("[data-dialog], [data-close], [data-copy]");
    if (!target) return;
    const { dialog, copy } = target.dataset;
    if (dialog) {
      const opened = document.getElementById(dialog);
      if (!opened) return; // the link leads to the same question
      event.preventDefault();
      opened.showModal();
    } else if (copy) {
      await copyText(copy, target);
    } else {
      target.closest("dialog").close();
    }
  });

  const copyText = async (text, button) => {
    const said = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // Only a page that browsers take for secure may write the clipboard.
      getSelection().selectAllChildren(document.getElementById("job-id"));
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = said; }, 1.5 * SECOND);
  };

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, textarea, select, dialog");
    const search = document.querySelector("[data-slash]");
    if (event.key === "/" && !isTyping && search && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  });

  tellTimes();
  lookAgain();
})();
