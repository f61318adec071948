/** Offer text as a file to keep; nothing is asked of the controller. */
export function saveFile(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  link.download = name;
  link.target = "_blank";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
