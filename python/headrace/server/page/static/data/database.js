// Records that all tabs of this browser share: in IndexedDB, or, where there is none, in this tab alone.

const STORES = ["chats", "messages"];

function asked(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function connect() {
  const request = indexedDB.open("headrace", 1);
  request.onupgradeneeded = () => {
    for (const name of STORES) {
      const store = request.result.createObjectStore(name, { keyPath: "id" });
      if (name === "messages") store.createIndex("chat", "chat");
    }
  };
  return asked(request);
}

// `change` gets each id's record (undefined: there is none) and gives the new one; null removes it.
// One transaction: no other tab writes in between.
class Shared {
  constructor(database) {
    this.database = database;
  }

  async change(name, ids, change) {
    const transaction = this.database.transaction(name, "readwrite");
    const store = transaction.objectStore(name);
    const done = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = transaction.onerror = () => reject(transaction.error);
    });
    for (const id of ids) {
      store.get(id).onsuccess = ({ target }) => {
        const made = change(target.result, id);
        if (made === null) store.delete(id);
        else store.put(made);
      };
    }
    await done;
  }

  all(name, chat) {
    const store = this.database.transaction(name).objectStore(name);
    return asked(chat === undefined ? store.getAll() : store.index("chat").getAll(chat));
  }
}

class Own {
  #records = { chats: new Map(), messages: new Map() };

  async change(name, ids, change) {
    const records = this.#records[name];
    for (const id of ids) {
      const made = change(records.get(id), id);
      if (made === null) records.delete(id);
      else records.set(id, made);
    }
  }

  async all(name, chat) {
    const records = [...this.#records[name].values()];
    return chat === undefined ? records : records.filter((one) => one.chat === chat);
  }
}

// With `isShared`: whether what is stored outlives the tab.
export async function openDatabase() {
  try {
    return Object.assign(new Shared(await connect()), { isShared: true });
  } catch {
    return Object.assign(new Own(), { isShared: false });
  }
}
